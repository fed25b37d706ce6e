// RingGroups: the communicators by which this worker's engine steps together with other instances,
// and a ring step in the engine's words. Carries out on a Fabric what scheduler::RingSteps decides:
// which group is made, kept, broken and dropped when. The fabric keeps the connections, so making a
// group creates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/fabric.h"
#include "engine/engine.h"
#include "scheduler/worker/steps/ring_steps.h"
#include "scheduler/worker/steps/step.h"

namespace skein::services {

class RingGroups {
 public:
  // `fabric` outlives this; null: the instance can only step alone.
  explicit RingGroups(engine::Fabric* fabric) : fabric_(fabric) {}

  // The engine's thread: the step that `part` describes, its groups valid until Leave. UNAVAILABLE:
  // a group could not be made. CANCELLED: the step was aborted before.
  absl::StatusOr<engine::RingStep> Enter(uint64_t step, const scheduler::RingPart& part);
  // The step has ended.
  void Leave(const absl::Status& status);

  // Any thread; never blocks: groups are made and broken at once, and nothing waits while the lock
  // is held. Breaks the groups of `step`, whether this worker is in them, has yet to enter or has
  // just left; the other members are notified.
  void Abort(uint64_t step, const absl::Status& reason);
  // Any thread, never blocks. Tells the other members of a group that this one does not come.
  void Break(const scheduler::BreakGroup& group, const absl::Status& reason);
  // Breaks current and future groups.
  void Stop();

 private:
  using Group = std::unique_ptr<engine::Communicator>;

  void Run(const scheduler::RingSteps::Effects& effects);
  void On(const scheduler::MakeGroup& effect);
  void On(const scheduler::DropGroup& effect);
  void On(const scheduler::AbortGroup& effect);
  void On(const scheduler::RefuseGroup& effect);
  absl::StatusOr<Group> Make(GroupId key, const std::vector<std::string>& addresses, int rank);
  Group& GroupOf(scheduler::RingGroup group) {
    return group == scheduler::RingGroup::kPieces ? pieces_ : moves_;
  }

  engine::Fabric* const fabric_;
  std::mutex mu_;
  scheduler::RingSteps steps_;
  Group pieces_;
  Group moves_;
};

}  // namespace skein::services
