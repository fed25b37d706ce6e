// GroupControl: which instances form a group, and how far their communicators are. A group is all
// instances of one role and model on one node; an instance that tells no node is a group alone.
// How its instances are bound: formations.h. Part of OrchestratorCore, which tells it which
// instances come and go.
//
// Communicators. The decode instances of a group make the communicators of all its aligned subsets
// before any formation needs them (GroupOrder), under a generation that only grows: when the group
// has had the same members for kSettleUs, and again, after a pause, when one of them reports that
// its communicators could not be made or have broken. An orchestrator that takes over orders them
// once more, under a higher generation; those of former ones stay good for steps that use them.
//
// A call costs O(log instances) plus the size of the group; TakeDue O(1) with nothing due, else the
// square of the size of each group that is, because each order lists all members.
//
// What has left. A decode instance that has left the group of its node counts as absent, because it
// may be restarted, until another one comes to the group or it has been away for a time. One that
// another process has replaced at its address has been restarted: it does not count, nor does the
// other take the place of one that is absent.
//
// Invariants (CheckInvariants names them): each instance of the registry is in exactly one group,
// that of its role, model and node; no group has another member, none is empty. The members of a
// group's order are in the group, or another order is due.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/base/timer_queue.h"
#include "scheduler/orchestrator/registry/registry.h"

namespace skein::scheduler::orchestrator {

class GroupControl {
 public:
  struct Key {
    Role role = Role::kPrefill;
    std::string model;
    std::string node;
    InstanceId alone;  // of an instance that tells no node; 0 otherwise
    auto operator<=>(const Key&) const = default;
  };
  struct Group {
    std::set<InstanceId> members;
    TimeUs since_us = 0;  // that it is there

    GroupOrder order;               // the latest; of generation 0 before the first
    std::set<InstanceId> ready;     // whose communicators of that generation are made
    TimeUs pause_us = kRetryMinUs;  // before it, after a failure
  };

  static constexpr TimeUs kSettleUs = kSecondUs / 2;
  static constexpr TimeUs kRetryMinUs = kSecondUs, kRetryMaxUs = 600 * kSecondUs;

  // Instances that have left count as absent for so long, unless others came in their place.
  explicit GroupControl(TimeUs kept_us = 3600 * kSecondUs) : kept_us_(kept_us) {}
  TimeUs kept_us() const { return kept_us_; }

  // The instance registered, at the address of those that it `replaces`, which are to leave. A
  // repeated call has no effect. REQUIRES: an id never names two processes.
  void Came(const Instance& instance, TimeUs now, const std::vector<InstanceId>& replaces = {});
  // It left or was lost. Ignored if unknown. A group without members is forgotten.
  void Left(InstanceId instance, TimeUs now);

  // The orchestrator took a higher generation: an instance may have heard orders of another one,
  // whose generations are above those given here. All groups that have an order get another one.
  void OrderAgain(TimeUs now);

  // The instance tells how far it is with its group's communicators. Ignored if unknown.
  void Reported(InstanceId instance, const WorkerLoad& load, TimeUs now);
  // The orders that are due, each with its addressee; all that were taken before are void. Their
  // generations are at least `first`, and above all before.
  std::vector<std::pair<InstanceId, GroupOrder>> TakeDue(const Registry& registry, uint64_t first,
                                                         TimeUs now);
  // The latest order of its group, as it was for this instance; of generation 0: none.
  GroupOrder OrderOf(InstanceId instance) const;
  TimeUs NextDue() const { return due_.Next(); }

  // How many instances of the group have left and may come back. A walk over the latest that left.
  int64_t AbsentOf(const Key& key, TimeUs now) const;

  const Group* GroupOf(InstanceId instance) const;  // null: it is unknown
  const Key* KeyOf(InstanceId instance) const;      // the same
  // MODEL@NODE; of an instance that tells no node, MODEL@instance-ID; with "/prefill" behind it for
  // prefill instances.
  static std::string NameOf(const Key& key);
  std::optional<Key> Named(std::string_view name) const;  // a walk over the groups
  const std::map<Key, Group>& all() const { return groups_; }
  // visit(key, group) of each group of decode instances of the model.
  template <class Visit>
  void ForEachDecodeGroup(const std::string& model, Visit visit) const {
    const Key first = {.role = Role::kDecode, .model = model, .node = "", .alone = {}};
    for (auto it = groups_.lower_bound(first); it != groups_.end(); ++it) {
      if (it->first.role != Role::kDecode || it->first.model != model) return;
      visit(it->first, it->second);
    }
  }
  absl::Status CheckInvariants(const Registry& registry) const;

 private:
  static Key KeyOf(const Instance& instance);
  void OrderAt(TimeUs at, const Key& key);
  absl::Status CheckOrders() const;

  static constexpr size_t kAbsentMost = 256;

  const TimeUs kept_us_;
  std::deque<std::pair<Key, TimeUs>> absent_;  // since when, in this order; the latest kAbsentMost
  std::set<InstanceId> replaced_;              // and have not left yet
  std::map<Key, Group> groups_;
  std::map<InstanceId, Key> key_of_;
  TimerQueue<Key> due_;  // when the next order of a group is
  uint64_t last_generation_ = 0;
};

}  // namespace skein::scheduler::orchestrator
