#include "tests/sim/engine_thread.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "proto/common.pb.h"
#include "scheduler/base/plant.h"
#include "services/worker/sampling_codec.h"
#include "tests/sim/scenario.h"

namespace skein::sim {
namespace {

// Owns what the spans of SequenceStep point to.
struct Inputs {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::vector<int32_t>> next_tokens;
  std::vector<std::vector<int32_t>> tables;
  std::vector<engine::SamplingParams> sampling;
  std::vector<engine::SequenceStep> steps;

  explicit Inputs(const scheduler::RunStep& step) {
    const size_t count = step.sequences.size();
    tokens.resize(count);
    next_tokens.resize(count);
    tables.resize(count);
    sampling.resize(count);
    for (size_t i = 0; i < count; ++i) Add(step.sequences[i], i, step.probe);
  }
  void Add(const scheduler::StepSequence& sequence, size_t i, bool probe) {
    const std::vector<int32_t>& prompt = sequence.spec->prompt;
    const auto prompt_tokens = static_cast<int64_t>(prompt.size());
    const int64_t end = sequence.position + sequence.count;
    for (int64_t place = sequence.position; place < end; ++place) {
      tokens[i].push_back(sequence.TokenAt(place));
      if (!sequence.spec->want_prompt_logprobs || sequence.position >= prompt_tokens) continue;
      next_tokens[i].push_back(place + 1 < prompt_tokens ? prompt[place + 1] : -1);
    }
    for (scheduler::BlockId block : *sequence.blocks) tables[i].push_back(block.value);
    engine::SequenceStep one;
    one.tokens = tokens[i];
    one.position = sequence.position;
    one.block_table = tables[i];
    one.sample = sequence.sample;
    sampling[i].temperature = 0;  // of a probe
    if (!probe) sampling[i] = services::SamplingFrom(*sequence.spec);
    one.sampling = &sampling[i];
    one.token_index = static_cast<uint64_t>(sequence.token_index);
    one.prompt = sequence.spec->prompt;
    if (sequence.output != nullptr && !SKEIN_PLANT(penalties_forget)) {
      one.output = *sequence.output;
    }
    one.next_tokens = next_tokens[i];
    steps.push_back(one);
  }
};

bool AnyFailsEngines(const scheduler::RunStep& step) {
  return std::any_of(step.sequences.begin(), step.sequences.end(),
                     [](const auto& sequence) { return FailsEngines(*sequence.spec); });
}

scheduler::StepDone Compute(engine::EmulatedEngine& engine, const scheduler::RunStep& step) {
  const Inputs inputs(step);
  std::vector<engine::SequenceResult> results;
  scheduler::StepDone done{.step = step.step, .status = {}, .results = {}};
  done.status = engine.Step(inputs.steps, nullptr, &results);
  for (size_t i = 0; done.status.ok() && i < results.size(); ++i) {
    const scheduler::StepSequence& sequence = step.sequences[i];
    scheduler::StepResult result;
    result.status = StatusOf(sequence, results[i]);
    if (!result.status.ok()) {
      done.results.push_back(std::move(result));
      continue;
    }
    if (sequence.sample) {
      result.token = results[i].sampled.token;
      result.payload = TokenPayload(results[i].sampled);
    }
    result.prompt_logprobs = PromptPayload(results[i].prompt_logprobs);
    done.results.push_back(std::move(result));
  }
  return done;
}

}  // namespace

absl::Status StatusOf(const scheduler::StepSequence& sequence,
                      const engine::SequenceResult& result) {
  if (!result.status.ok() || !sequence.sample) return result.status;
  if (sequence.token_index < NanFrom(*sequence.spec)) return result.status;
  return absl::InternalError("logits hold NaN");
}

std::string TokenPayload(const engine::SampledToken& token) {
  return services::ToProto(token).SerializeAsString();
}

std::string PromptPayload(const std::vector<engine::SampledToken>& logprobs) {
  v1::SampledTokens payload;
  for (const engine::SampledToken& token : logprobs) {
    if (token.token >= 0) *payload.add_tokens() = services::ToProto(token);
  }
  return payload.SerializeAsString();
}

void EngineThread::Run(Network* network, Process* process,
                       std::shared_ptr<engine::EmulatedEngine> engine,
                       const scheduler::RunStep& step, LayerDone layer_done,
                       std::function<void(scheduler::StepDone)> done) {
  const TimeUs base = network->scenario().step_us * slowness;
  const TimeUs takes = network->random().Between(base / 2, base + base / 2);
  const int layers = engine->Spec().kv.num_layers;
  busy = true;
  if (hangs) return;
  const bool broken = AnyFailsEngines(step);
  if (network->scenario().compute_at_end) {
    process->After(takes, [=, this] {
      scheduler::StepDone result = Compute(*engine, step);
      busy = false;
      if (fails || broken) result = {step.step, absl::InternalError("the device failed"), {}};
      for (int layer = 0; layer < layers; ++layer) layer_done(step, layer);
      done(std::move(result));
    });
    return;
  }
  const scheduler::StepDone result = Compute(*engine, step);
  for (int layer = 0; layer < layers; ++layer) {
    process->After(takes * (layer + 1) / layers, [=] { layer_done(step, layer); });
  }
  process->After(takes, [=, this] {
    busy = false;
    if (fails || broken) return done({step.step, absl::InternalError("the device failed"), {}});
    done(result);
  });
}

}  // namespace skein::sim
