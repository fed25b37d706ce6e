// RingGroups: the rings by which this worker's engine steps together with other instances, and a
// ring step in the engine's words. Carries out on a RingFabric what scheduler::RingSteps decides:
// which ring is opened, kept, broken and closed when. The fabric has the links, so no plan makes
// any.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/ring_fabric.h"
#include "engine/step.h"
#include "scheduler/worker/steps/ring_steps.h"
#include "scheduler/worker/steps/step.h"

namespace skein::services {

class RingGroups {
 public:
  // Why the bytes of a group of the fabric go through the host's memory although they are on
  // devices; nullopt: they do not.
  using WhyThroughHost = std::function<std::optional<std::string>(const engine::Communicator&)>;

  // `fabric` outlives this; null: the instance can only step alone. Without `why_through_host`, no
  // group goes through the host's memory.
  explicit RingGroups(engine::RingFabric* fabric, WhyThroughHost why_through_host = nullptr)
      : fabric_(fabric), why_through_host_(std::move(why_through_host)) {}

  // The engine's thread: the step that `part` describes, its groups valid until Leave. UNAVAILABLE:
  // a ring could not be opened. CANCELLED: the step was aborted before.
  absl::StatusOr<engine::RingStep> Enter(uint64_t step, const scheduler::RingPart& part);
  // The step has ended.
  void Leave(const absl::Status& status);
  // With no such step in flight: how the bytes of the latest one went; nullopt: it failed, or was
  // none of several instances.
  const std::optional<scheduler::RingPath>& path() const { return path_; }

  // Any thread; never blocks: rings are opened and broken at once, and nothing waits while the lock
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
  void On(const scheduler::OpenRing& effect);
  void On(const scheduler::CloseRing& effect);
  void On(const scheduler::AbortRing& effect);
  void On(const scheduler::RefuseRing& effect);
  absl::StatusOr<Group> Make(GroupId key, const std::vector<std::string>& addresses, int rank);
  Group& GroupOf(scheduler::RingKind kind) { return groups_[static_cast<size_t>(kind)]; }

  std::optional<scheduler::RingPath> PathNow();

  engine::RingFabric* const fabric_;
  const WhyThroughHost why_through_host_;
  std::optional<scheduler::RingPath> path_;
  std::mutex mu_;
  scheduler::RingSteps steps_;
  std::array<Group, scheduler::kRingKinds.size()> groups_;  // by kind; null: not open
};

}  // namespace skein::services
