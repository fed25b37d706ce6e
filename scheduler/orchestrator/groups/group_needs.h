// GroupNeeds: what requests want of the groups of decode instances: the lengths of those that no
// instance alone holds (long_requests.h), by the group at which each waits or runs. The policy of
// formations (formation_policy.h) is told of them. Part of OrchestratorCore; one thread.
//
// A call costs O(log n) of what is counted.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "scheduler/orchestrator/groups/group_control.h"

namespace skein::scheduler::orchestrator {

class GroupNeeds {
 public:
  using Key = GroupControl::Key;

  // `tokens`: prompt and output. REQUIRES of Leave: it was joined so.
  void Join(const Key& group, int64_t tokens) { long_[group].insert(tokens); }
  void Leave(const Key& group, int64_t tokens);
  int64_t LongestOf(const Key& group) const;  // tokens; 0: there is none
  size_t LongOf(const Key& group) const;      // how many

  // The model's instances or formations changed: requests that wait for a group may find one.
  void NoteChange(const std::string& model) { changed_.insert(model); }
  std::set<std::string> TakeChanged() { return std::exchange(changed_, {}); }

  const std::map<Key, std::multiset<int64_t>>& all() const { return long_; }

 private:
  std::map<Key, std::multiset<int64_t>> long_;  // no set is empty
  std::set<std::string> changed_;
};

}  // namespace skein::scheduler::orchestrator
