#include "tests/sim/engine_thread.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "proto/common.pb.h"
#include "services/worker/engine/sampling_codec.h"
#include "services/worker/engine/step_conversion.h"
#include "tests/sim/answers.h"
#include "tests/sim/group_talk.h"
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

  explicit Steps(std::shared_ptr<engine::EmulatedEngine> of)
      : device(std::move(of)), engine(device.get()), conversion(&engine) {}

  // The first step that was launched.
  scheduler::StepDone Compute(const Planned& planned) {
    engine::CompletedStep completed = *engine.Poll();
    auto result = completed.results.begin();  // of those that the engine took
    for (size_t i = 0; completed.status.ok() && i < planned.admitted.size(); ++i) {
      if (!planned.admitted[i].ok()) continue;
      result->status = StatusOf(planned.step.sequences[i], *result);
      ++result;
    }
    return services::StepConversion::DoneOf(planned, completed);
  }

  const std::shared_ptr<engine::EmulatedEngine> device;
  TalkingEngine engine;
  services::StepConversion conversion;
};

struct EngineThread::Handed {
  Network* network;
  Process* process;
  std::shared_ptr<Steps> steps;
  Steps::Planned planned;
  LayerDone layer_done;
  std::function<void(scheduler::StepDone)> done;
  // Of a step of a bound group.
  GroupSteps* group_steps = nullptr;
  FormationFeeds::Place place = {};
  absl::StatusOr<engine::GroupPart> part = absl::UnknownError("not entered");

  const scheduler::RunStep& step() const { return planned.step; }
};

void EngineThread::Release(const scheduler::ReleaseSequence& effect) {
  if (steps_ != nullptr) steps_->conversion.Release(effect);
}

absl::Status StatusOf(const scheduler::StepSequence& sequence,
                      const engine::SequenceResult& result) {
  if (!result.status.ok() || !sequence.sample) return result.status;
  const int64_t index = sequence.spec->sent_tokens + sequence.token_index;  // of the whole answer
  if (index < NanFrom(*sequence.spec)) return result.status;
  return absl::InternalError("logits hold NaN");
}

std::string PromptPayload(const std::vector<engine::SampledToken>& logprobs) {
  v1::SampledTokens payload;
  for (const engine::SampledToken& token : logprobs) {
    if (token.token >= 0) *payload.add_tokens() = services::ToProto(token);
  }
  return payload.SerializeAsString();
}

std::shared_ptr<EngineThread::Handed> EngineThread::Hand(
    Network* network, Process* process, std::shared_ptr<engine::EmulatedEngine> engine,
    const scheduler::RunStep& step, LayerDone layer_done,
    std::function<void(scheduler::StepDone)> done) {
  if (steps_ == nullptr || steps_->device != engine) steps_ = std::make_shared<Steps>(engine);
  return std::make_shared<Handed>(Handed{network, process, steps_, steps_->conversion.PlanOf(step),
                                         std::move(layer_done), std::move(done)});
}

void EngineThread::Run(Network* network, Process* process,
                       std::shared_ptr<engine::EmulatedEngine> engine,
                       const scheduler::RunStep& step, LayerDone layer_done,
                       std::function<void(scheduler::StepDone)> done) {
  Launch(Hand(network, process, std::move(engine), step, std::move(layer_done), std::move(done)));
}

void EngineThread::RunInGroup(Network* network, Process* process,
                              std::shared_ptr<engine::EmulatedEngine> engine,
                              const scheduler::RunStep& step, GroupSteps* steps,
                              FormationFeeds::Place place,
                              std::function<void(scheduler::StepDone)> done) {
  const std::shared_ptr<Handed> handed = Hand(
      network, process, std::move(engine), step, [](const scheduler::RunStep&, int) {},
      std::move(done));
  handed->group_steps = steps;
  handed->place = std::move(place);
  Handed* const entered = handed.get();  // which holds the engine that holds the plan
  handed->planned.plan.group = {.enter = [entered] { return entered->part; },
                                .leave = [](const absl::Status&) {}};
  Launch(handed);
}

void EngineThread::Launch(std::shared_ptr<Handed> handed) {
  steps_->engine.Launch(std::move(handed->planned.plan));
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
  const int layers = step->steps->device->Spec().kv.num_layers;
  busy = true;
  if (hangs) return;
  if (step->group_steps != nullptr) return BeginInGroup(step);
  if (network->scenario().compute_at_end) {
    step->process->After(takes, [=, this] {
      scheduler::StepDone result = step->steps->Compute(step->planned);
      for (int layer = 0; layer < layers; ++layer) step->layer_done(step->step(), layer);
      End(*step, std::move(result));
    });
    return;
  }
  const scheduler::StepDone result = step->steps->Compute(step->planned);
  for (int layer = 0; layer < layers; ++layer) {
    step->process->After(takes * (layer + 1) / layers,
                         [=] { step->layer_done(step->step(), layer); });
  }
  step->process->After(takes, [=, this] { End(*step, result); });
}

void EngineThread::BeginInGroup(const std::shared_ptr<Handed>& step) {
  const auto compute = [step](const absl::StatusOr<engine::GroupPart>& part) {
    step->part = part;
    return step->steps->Compute(step->planned);
  };
  if (step->place.context == nullptr) {
    return step->process->After(1, [=, this] {
      End(*step, compute(absl::InvalidArgumentError("this worker is in no group")));
    });
  }
  step->group_steps->Enter(
      step->place,
      {.process = step->process,
       .step = step->step(),
       .compute = compute,
       .fails = [=, this] { return fails || AnyFailsEngines(step->step()); },
       .slowness = [this] { return slowness; },
       .done = [=, this](scheduler::StepDone result) { End(*step, std::move(result)); }});
}

void EngineThread::End(const Handed& step, scheduler::StepDone result) {
  if (fails || AnyFailsEngines(step.step())) {
    result = {step.step().step, absl::InternalError("the device failed"), {}};
  }
  busy = false;
  const std::shared_ptr<Handed> next = std::exchange(waiting_, nullptr);
  if (next != nullptr && engine::EndsTheNext(result.status)) {
    steps_.reset();  // with the step that is not run; the engine has failed
    step.process->After(1, [next, status = result.status] {
      next->done({next->step().step, status, {}});
    });
  } else if (next != nullptr) {
    Begin(next);
  }
  step.done(std::move(result));
}

}  // namespace skein::sim
