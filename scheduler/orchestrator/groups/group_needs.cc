#include "scheduler/orchestrator/groups/group_needs.h"

#include <iterator>

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler::orchestrator {

void GroupNeeds::Leave(const Key& group, const Need& need) {
  const auto it = long_.find(group);
  SKEIN_CHECK(it != long_.end());
  const auto one = it->second.find(need);
  SKEIN_CHECK(one != it->second.end());
  it->second.erase(one);
  if (it->second.empty()) long_.erase(it);
}

int64_t GroupNeeds::LongestIn(const Key& group, uint64_t epoch, int64_t most) const {
  const auto it = long_.find(group);
  if (it == long_.end()) return 0;
  const auto after = it->second.upper_bound({epoch, most});
  if (after == it->second.begin()) return 0;
  const Need& last = *std::prev(after);
  return last.epoch == epoch ? last.tokens : 0;
}

size_t GroupNeeds::CountIn(const Key& group, uint64_t epoch) const {
  const auto it = long_.find(group);
  if (it == long_.end()) return 0;
  const auto first = it->second.lower_bound({epoch, 0});
  const auto end = it->second.upper_bound({epoch, kAny});
  return static_cast<size_t>(std::distance(first, end));
}

size_t GroupNeeds::LongOf(const Key& group) const {
  const auto it = long_.find(group);
  return it == long_.end() ? 0 : it->second.size();
}

}  // namespace skein::scheduler::orchestrator
