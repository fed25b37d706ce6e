// EngineRunner: runs a core's steps on an engine, one after the other, and tells of their layers
// and ends. What a step costs beside the engine is done while the engine runs another one: a step
// may be handed over while one is in flight, and the results of one are put into the core's words
// by the core's thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "engine/engine.h"
#include "engine/stepping/step_engine.h"
#include "scheduler/worker/steps/step.h"
#include "services/worker/engine/ring_groups.h"
#include "services/worker/engine/step_conversion.h"
#include "services/worker/engine/step_log.h"

namespace skein::services {

class EngineRunner {
 public:
  // Called on the engine's thread when a layer's KV of the step's sequences is written; must not
  // block. May be empty.
  using LayerDone = std::function<void(const scheduler::RunStep& step, int layer)>;
  // Called when TakeDone has something new, mostly on the engine's thread, whose next step waits
  // for it. `idle`: there is no next step, so the caller may do what follows from the end.
  using Ended = std::function<void(bool idle)>;

  // `engine`, `log` and `groups`, where there are any, outlive the runner. Without groups ring
  // steps are INVALID_ARGUMENT.
  EngineRunner(engine::Engine* engine, LayerDone layer_done, Ended ended, StepLog* log = nullptr,
               RingGroups* groups = nullptr);
  ~EngineRunner();  // waits for the step that runs; one behind it does not begin

  // These three on one thread, the core's.
  // Hands a step over. REQUIRES: at most one is in flight.
  void Run(scheduler::RunStep step);
  // The steps that have ended since the last call, in order.
  std::vector<scheduler::StepDone> TakeDone();
  void Release(const scheduler::ReleaseSequence& effect) { conversion_.Release(effect); }

 private:
  // A step that was handed over. `empty`: the engine has admitted none of its sequences.
  struct Handed {
    std::shared_ptr<const StepConversion::Planned> planned;
    bool empty = false;
  };

  scheduler::StepDone DoneOf(const StepConversion::Planned& planned,
                             const engine::CompletedStep& completed) const;
  engine::RingMeeting MeetingOf(const scheduler::RunStep& step) const;

  const LayerDone layer_done_;
  const Ended ended_;
  StepLog* const log_;
  RingGroups* const groups_;
  std::deque<Handed> in_flight_;
  const std::unique_ptr<engine::StepEngine> engine_;
  StepConversion conversion_;
};

}  // namespace skein::services
