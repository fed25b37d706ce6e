// GroupNeeds: what requests want of the groups of decode instances: the lengths of those that no
// instance alone holds (long_requests.h), by the group at which each waits or runs, and by the
// formation that runs it. The policy of formations (formation_policy.h) is told of them. Part of
// OrchestratorCore; one thread.
//
// A call costs O(log n) of what is counted.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "scheduler/orchestrator/groups/group_control.h"

namespace skein::scheduler::orchestrator {

class GroupNeeds {
 public:
  using Key = GroupControl::Key;
  static constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

  struct Need {
    uint64_t epoch = 0;  // of the formation that runs it; 0: it waits
    int64_t tokens = 0;  // prompt and output
    auto operator<=>(const Need&) const = default;
  };
  // REQUIRES of Leave: it was joined so.
  void Join(const Key& group, const Need& need) { long_[group].insert(need); }
  void Leave(const Key& group, const Need& need);
  // Of those that the formation runs, or that wait, of at most so many tokens; 0: there is none.
  int64_t LongestIn(const Key& group, uint64_t epoch, int64_t most = kAny) const;
  int64_t LongestWaiting(const Key& group, int64_t most = kAny) const {
    return LongestIn(group, 0, most);
  }
  size_t LongOf(const Key& group) const;  // how many wait or run
  // How many the formation runs, or wait. A walk over them.
  size_t CountIn(const Key& group, uint64_t epoch) const;

  // The model's instances or formations changed: requests that wait for a group may find one.
  void NoteChange(const std::string& model) { changed_.insert(model); }
  std::set<std::string> TakeChanged() { return std::exchange(changed_, {}); }

  const std::map<Key, std::multiset<Need>>& all() const { return long_; }

 private:
  std::map<Key, std::multiset<Need>> long_;  // no set is empty
  std::set<std::string> changed_;
};

}  // namespace skein::scheduler::orchestrator
