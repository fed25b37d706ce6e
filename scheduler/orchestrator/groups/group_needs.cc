#include "scheduler/orchestrator/groups/group_needs.h"

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler::orchestrator {

void GroupNeeds::Leave(const Key& group, int64_t tokens) {
  const auto it = long_.find(group);
  SKEIN_CHECK(it != long_.end());
  const auto one = it->second.find(tokens);
  SKEIN_CHECK(one != it->second.end());
  it->second.erase(one);
  if (it->second.empty()) long_.erase(it);
}

int64_t GroupNeeds::LongestOf(const Key& group) const {
  const auto it = long_.find(group);
  return it == long_.end() ? 0 : *it->second.rbegin();
}

size_t GroupNeeds::LongOf(const Key& group) const {
  const auto it = long_.find(group);
  return it == long_.end() ? 0 : it->second.size();
}

}  // namespace skein::scheduler::orchestrator
