// GroupControl: which instances form a group, and how each group is arranged now (its formation).
// A group is all instances of one role and model on one node; an instance that tells no node is a
// group alone. Part of OrchestratorCore, which tells it which instances come and go.
//
// Today every group is kIndependent: each instance works alone, with its own batch. Formations in
// which instances work together, and the policy that chooses one, will be decided here.
//
// A call costs O(log instances) plus the size of the group.
//
// Invariants (CheckInvariants names them): each instance of the registry is in exactly one group,
// that of its role, model and node; no group has another member, none is empty.
#pragma once

#include <compare>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/registry/registry.h"

namespace skein::scheduler::orchestrator {

enum class Formation {
  kIndependent,  // each instance runs its own steps, with all of its weights
};
std::string_view NameOf(Formation formation);  // "independent"

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
    Formation formation = Formation::kIndependent;
    TimeUs since_us = 0;  // when it took this formation
    std::string why;      // for people
  };

  // The instance registered. A repeated call has no effect. REQUIRES: an id never names two
  // processes.
  void Came(const Instance& instance, TimeUs now);
  // It left or was lost. Ignored if unknown. A group without members is forgotten.
  void Left(InstanceId instance);

  const Group* GroupOf(InstanceId instance) const;  // null: it is unknown
  const std::map<Key, Group>& all() const { return groups_; }
  absl::Status CheckInvariants(const Registry& registry) const;

 private:
  static Key KeyOf(const Instance& instance);

  std::map<Key, Group> groups_;
  std::map<InstanceId, Key> key_of_;
};

}  // namespace skein::scheduler::orchestrator
