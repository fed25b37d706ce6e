// Pins: what operators have pinned of one group: instances that are to be bound together or to
// share their weights, with how, and instances that are to work alone. An instance is in one pin at
// most; a later pin takes the place of all that it overlaps.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/shared_mode.h"
#include "scheduler/orchestrator/groups/formation.h"

namespace skein::scheduler::orchestrator {

// How pinned instances are bound, whenever that is done: as the operator's order says.
struct PinnedBind {
  OwnSequences own = OwnSequences::kShare;  // as in PrepareFormation
  std::optional<ShiftRule> shift = {};      // likewise; empty: as the profile says
  // They share their weights instead, always in this mode, or as the batch says.
  bool shares = false;
  std::optional<SharedMode> mode = {};
};

class Pins {
 public:
  void Bind(const std::vector<InstanceId>& members, const PinnedBind& how = {});  // ascending
  void Alone(const std::vector<InstanceId>& instances);
  void Unpin(const std::vector<InstanceId>& instances);  // every pin that one of them is in
  // For good. What it was to be bound with is not pinned any more.
  void Left(InstanceId instance) { Unpin({instance}); }

  bool Has(InstanceId instance) const;
  const PinnedBind* BoundAs(const std::vector<InstanceId>& members) const;  // null: not pinned so
  bool empty() const { return bound_.empty() && alone_.empty(); }
  // As subsets of the order. What was bound there once may not be bindable any more; what has no
  // place in it is left out. Those that share their weights are pinned alone here, and together in
  // SharedIn: whoever asks for what is bound finds them taken.
  std::vector<Subset> In(const GroupOrder& order) const;
  std::vector<Subset> SharedIn(const GroupOrder& order) const;
  absl::Status CheckInvariants() const;

 private:
  std::map<std::vector<InstanceId>, PinnedBind> bound_;
  std::set<InstanceId> alone_;
};

}  // namespace skein::scheduler::orchestrator
