#include "tests/sim/engine_thread.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "proto/common.pb.h"
#include "services/worker/engine/sampling_codec.h"
#include "services/worker/engine/step_conversion.h"
#include "tests/sim/scenario.h"

namespace skein::sim {
namespace {

bool AnyFailsEngines(const scheduler::RunStep& step) {
  return std::any_of(step.sequences.begin(), step.sequences.end(),
                     [](const auto& sequence) { return FailsEngines(*sequence.spec); });
}

scheduler::StepDone Compute(engine::EmulatedEngine& engine, const scheduler::RunStep& step) {
  const services::StepInputs inputs(step, [](const scheduler::RequestSpec& spec) {
    return std::make_shared<const engine::SamplingParams>(services::SamplingFrom(spec));
  });
  std::vector<engine::SequenceResult> results;
  scheduler::StepDone done{.step = step.step, .status = {}, .results = {}};
  done.status = engine.Step(inputs.sequences(), nullptr, &results);
  for (size_t i = 0; done.status.ok() && i < results.size(); ++i) {
    results[i].status = StatusOf(step.sequences[i], results[i]);
    done.results.push_back(services::ResultOf(step.sequences[i], results[i]));
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
