// EngineRunner: runs a core's steps on an engine, one after the other, and tells of their layers
// and ends. What a step costs beside the engine is done while the engine runs another one: a step
// may be handed over while one is in flight, and the results of one are put into the core's words
// by the core's thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/model/group/group_contexts.h"
#include "engine/stepping/step_engine.h"
#include "scheduler/worker/steps/step.h"
#include "services/worker/engine/ring_groups.h"
#include "services/worker/engine/step_conversion.h"
#include "services/worker/engine/step_counts.h"
#include "services/worker/engine/step_log.h"

namespace skein::services {

class EngineRunner {
 public:
  // None of these may block.
  struct Told {
    // When TakeDone has something new, mostly on the engine's thread, whose next step waits for it.
    // `idle`: there is no next step, so the caller may do what follows from the end.
    std::function<void(bool idle)> ended;
    // TellLayers may have something new. On the engine's thread.
    std::function<void(int layer)> layer_queued = nullptr;
    // A layer's KV of the step's sequences is written. Called by TellLayers and TakeDone, for the
    // layers of a step in their order, and before the step's end is told. Empty: nobody asks.
    std::function<void(const scheduler::RunStep& step, int layer)> layer_written = nullptr;
  };

  // Where completed steps are told; either may be null.
  struct Records {
    StepCounts* counts = nullptr;
    StepLog* log = nullptr;
  };

  // `engine`, `groups` and what `records` names, where there is any, outlive the runner. Without
  // groups ring steps are INVALID_ARGUMENT.
  EngineRunner(engine::StepEngine* engine, Told told, Records records,
               RingGroups* groups = nullptr);
  ~EngineRunner();  // waits for the steps in flight

  // These three on one thread, the core's.
  // Hands a step over. REQUIRES: at most one is in flight.
  void Run(scheduler::RunStep step);
  // The steps that have ended since the last call, in order.
  std::vector<scheduler::StepDone> TakeDone();
  void Release(const scheduler::ReleaseSequence& effect) { conversion_.Release(effect); }
  // Steps of a bound group run in this context from now on; null: INVALID_ARGUMENT.
  void SetGroup(std::shared_ptr<engine::GroupContext> group) { group_ = std::move(group); }

  // Any thread. Tells the layers that are written and were not told. True: the device has work of
  // further ones, so it is worth while to look again soon.
  bool TellLayers();

 private:
  // A step that was handed over. `empty`: the engine has admitted none of its sequences.
  struct Handed {
    std::shared_ptr<const StepConversion::Planned> planned;
    bool empty = false;
    int layers_told = 0;
  };

  void TellLayers(int written, Handed* step) const;
  void StepCompleted(bool idle);

  scheduler::StepDone DoneOf(const StepConversion::Planned& planned,
                             const engine::CompletedStep& completed) const;
  void Record(const StepConversion::Planned& planned, const engine::CompletedStep& completed) const;
  engine::RingMeeting MeetingOf(const scheduler::RunStep& step) const;
  engine::GroupMeeting GroupMeetingOf(const scheduler::RunStep& step) const;

  const Told told_;
  const Records records_;
  RingGroups* const groups_;
  std::mutex mu_;  // held while layers are told, so that none is after its step's end
  std::deque<Handed> in_flight_;
  std::mutex running_mu_;
  std::condition_variable idle_;
  int running_ = 0;  // steps whose end the engine has not told
  engine::StepEngine* const engine_;
  StepConversion conversion_;
  std::shared_ptr<engine::GroupContext> group_;
};

}  // namespace skein::services
