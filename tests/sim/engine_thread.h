// The engine thread of a simulated worker: runs steps of the emulated engine in virtual time, one
// after the other. A step that comes while one runs waits for its end, as in engine/engine.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/emulated/emulated_engine.h"
#include "scheduler/worker/steps/step.h"
#include "tests/sim/group_steps.h"
#include "tests/sim/network.h"

namespace skein::sim {

class EngineThread {
 public:
  int64_t slowness = 1;
  bool fails = false;
  bool hangs = false;  // the next step never ends
  bool busy = false;

  bool full() const { return waiting_ != nullptr; }
  // Layer l of the step's sequences is written.
  using LayerDone = std::function<void(const scheduler::RunStep&, int layer)>;
  void Run(Network* network, Process* process, std::shared_ptr<engine::EmulatedEngine> engine,
           const scheduler::RunStep& step, LayerDone layer_done,
           std::function<void(scheduler::StepDone)> done);
  // The same of a step of a bound group, which the process enters at `place` when its engine is
  // free. A place without a context: INVALID_ARGUMENT, as without communicators.
  void RunInGroup(Network* network, Process* process,
                  std::shared_ptr<engine::EmulatedEngine> engine, const scheduler::RunStep& step,
                  GroupSteps* steps, FormationFeeds::Place place,
                  std::function<void(scheduler::StepDone)> done);
  void Release(const scheduler::ReleaseSequence& effect);

 private:
  // The engine with the sequences that it was given.
  struct Steps;
  // A step that was handed over.
  struct Handed;

  std::shared_ptr<Handed> Hand(Network* network, Process* process,
                               std::shared_ptr<engine::EmulatedEngine> engine,
                               const scheduler::RunStep& step, LayerDone layer_done,
                               std::function<void(scheduler::StepDone)> done);
  void Launch(std::shared_ptr<Handed> step);
  void Begin(const std::shared_ptr<Handed>& step);
  void BeginInGroup(const std::shared_ptr<Handed>& step);
  void End(const Handed& step, scheduler::StepDone result);

  std::shared_ptr<Steps> steps_;
  std::shared_ptr<Handed> waiting_;
};

// The status of a sequence's result: as the engine gave it, or the error of NaN logits if the
// request asks for them (NanFrom).
absl::Status StatusOf(const scheduler::StepSequence& sequence,
                      const engine::SequenceResult& result);

// As the worker tells them (services/worker/engine/step_conversion.h).
std::string PromptPayload(const std::vector<engine::SampledToken>& logprobs);

}  // namespace skein::sim
