#include "tests/sim/engine_thread.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/stepping/inline_engine.h"
#include "proto/common.pb.h"
#include "services/worker/engine/sampling_codec.h"
#include "services/worker/engine/step_conversion.h"
#include "tests/sim/answers.h"
#include "tests/sim/scenario.h"

namespace skein::sim {
namespace {

bool AnyFailsEngines(const scheduler::RunStep& step) {
  return std::any_of(step.sequences.begin(), step.sequences.end(),
                     [](const auto& sequence) { return FailsEngines(*sequence.spec); });
}

}  // namespace

struct EngineThread::Steps {
  using Planned = services::StepConversion::Planned;
  using Prepared = std::shared_ptr<engine::PreparedStep>;

  explicit Steps(std::shared_ptr<engine::EmulatedEngine> emulated)
      : engine(std::move(emulated)), inline_engine(engine.get()), conversion(&inline_engine) {}

  scheduler::StepDone Compute(const Planned& planned, const Prepared& prepared) const {
    engine::CompletedStep completed = inline_engine.Run(prepared.get());
    for (size_t i = 0; completed.status.ok() && i < completed.results.size(); ++i) {
      completed.results[i].status = StatusOf(planned.step.sequences[i], completed.results[i]);
    }
    return services::StepConversion::DoneOf(planned, completed);
  }

  const std::shared_ptr<engine::EmulatedEngine> engine;
  engine::InlineEngine inline_engine;
  services::StepConversion conversion;
};

struct EngineThread::Handed {
  Network* network;
  Process* process;
  std::shared_ptr<Steps> steps;
  Steps::Planned planned;
  Steps::Prepared prepared;
  LayerDone layer_done;
  std::function<void(scheduler::StepDone)> done;

  const scheduler::RunStep& step() const { return planned.step; }
};

void EngineThread::Release(const scheduler::ReleaseSequence& effect) {
  if (steps_ != nullptr) steps_->conversion.Release(effect);
}

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
  if (steps_ == nullptr || steps_->engine != engine) steps_ = std::make_shared<Steps>(engine);
  auto handed =
      std::make_shared<Handed>(Handed{network, process, steps_, steps_->conversion.PlanOf(step),
                                      nullptr, std::move(layer_done), std::move(done)});
  handed->prepared = steps_->inline_engine.Prepare(handed->planned.plan);
  if (busy) {
    waiting_ = std::move(handed);
  } else {
    Begin(handed);
  }
}

void EngineThread::Begin(const std::shared_ptr<Handed>& step) {
  Network* network = step->network;
  const TimeUs base = network->scenario().step_us * slowness;
  const TimeUs takes = network->random().Between(base / 2, base + base / 2);
  const int layers = step->steps->engine->Spec().kv.num_layers;
  busy = true;
  if (hangs) return;
  if (network->scenario().compute_at_end) {
    step->process->After(takes, [=, this] {
      scheduler::StepDone result = step->steps->Compute(step->planned, step->prepared);
      for (int layer = 0; layer < layers; ++layer) step->layer_done(step->step(), layer);
      End(*step, std::move(result));
    });
    return;
  }
  const scheduler::StepDone result = step->steps->Compute(step->planned, step->prepared);
  for (int layer = 0; layer < layers; ++layer) {
    step->process->After(takes * (layer + 1) / layers,
                         [=] { step->layer_done(step->step(), layer); });
  }
  step->process->After(takes, [=, this] { End(*step, result); });
}

void EngineThread::End(const Handed& step, scheduler::StepDone result) {
  if (fails || AnyFailsEngines(step.step())) {
    result = {step.step().step, absl::InternalError("the device failed"), {}};
  }
  busy = false;
  const std::shared_ptr<Handed> next = std::exchange(waiting_, nullptr);
  if (next != nullptr && engine::EndsTheNext(result.status)) {
    step.process->After(1, [next, status = result.status] {
      next->done({next->step().step, status, {}});
    });
  } else if (next != nullptr) {
    Begin(next);
  }
  step.done(std::move(result));
}

}  // namespace skein::sim
