// EngineRunner: runs a core's steps on an engine, one at a time, and tells of their layers and
// ends.
#pragma once

#include <functional>
#include <memory>

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
  // Called on the engine's thread at the end of each step.
  using Done = std::function<void(scheduler::StepDone)>;

  // `engine`, `log` and `groups`, where there are any, outlive the runner. Without groups ring
  // steps are INVALID_ARGUMENT.
  EngineRunner(engine::Engine* engine, LayerDone layer_done, Done done, StepLog* log = nullptr,
               RingGroups* groups = nullptr);
  ~EngineRunner();  // waits for the step in flight

  // Hands a step over. REQUIRES: none is in flight.
  void Run(scheduler::RunStep step);
  void Release(const scheduler::ReleaseSequence& effect) { conversion_.Release(effect); }

 private:
  void Completed();
  engine::RingMeeting MeetingOf(const scheduler::RunStep& step) const;

  const LayerDone layer_done_;
  const Done done_;
  StepLog* const log_;
  RingGroups* const groups_;
  // Of the step in flight: written before it is launched, read when it has completed.
  std::shared_ptr<const StepConversion::Planned> in_flight_;
  const std::unique_ptr<engine::StepEngine> engine_;
  StepConversion conversion_;
};

}  // namespace skein::services
