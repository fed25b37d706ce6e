// RingGroups: the communicators by which this worker's engine steps together with other
// instances, and a ring step in the engine's words.
//
// One group is kept, that of the chunk whose pieces are being run; what moves history gets a second
// one for its step. The fabric keeps the connections, so making a group creates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/fabric.h"
#include "engine/engine.h"
#include "scheduler/worker/steps/step.h"

namespace skein::services {

class RingGroups {
 public:
  // `fabric` outlives this; null: the instance can only step alone.
  explicit RingGroups(engine::Fabric* fabric) : fabric_(fabric) {}

  // The engine's thread: the step that `part` describes, its groups valid until Leave. UNAVAILABLE
  // when there is no group to be had or it is broken; CANCELLED when the step was aborted before.
  absl::StatusOr<engine::RingStep> Enter(uint64_t step, const scheduler::RingPart& part);
  // The step has ended; a group whose step failed is not used again.
  void Leave(const absl::Status& status);

  // Any thread, never blocks. Breaks the groups of `step`, whether it is in them, has yet to enter
  // or has just left them; the other members hear of it.
  void Abort(uint64_t step, const absl::Status& reason);
  // Any thread, never blocks. Tells the other members of a group that this one does not come.
  void Break(const scheduler::BreakGroup& effect, const absl::Status& reason);
  // Breaks whatever runs and whatever comes.
  void Stop();

 private:
  absl::Status EnterGroups(const scheduler::RingPart& part);
  absl::StatusOr<std::unique_ptr<engine::Communicator>> Make(
      GroupId id, const std::vector<std::string>& addresses, int rank);
  void AbortGroups(const absl::Status& reason);

  engine::Fabric* const fabric_;
  std::mutex mu_;
  uint64_t entered_step_ = 0;  // the last one in the groups
  uint64_t aborted_step_ = 0;  // it and those before may not enter
  bool stopped_ = false;
  std::optional<GroupId> key_;  // of `group_`
  std::unique_ptr<engine::Communicator> group_;
  std::unique_ptr<engine::Communicator> moves_;
};

}  // namespace skein::services
