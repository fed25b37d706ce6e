#include "scheduler/kv/free_runs.h"

#include <algorithm>
#include <iterator>

namespace skein::scheduler {

FreeRuns::Run FreeRuns::Take(int32_t count) {
  auto run = by_length_.lower_bound({count, 0});
  if (run == by_length_.end()) run = by_length_.lower_bound({by_length_.rbegin()->first, 0});
  const auto [length, start] = *run;
  Erase(start, length);
  if (length > count) Insert(Run{start + count, length - count});
  return {start, std::min(count, length)};
}

void FreeRuns::Insert(Run run) {
  runs_.emplace(run.start, run.length);
  by_length_.emplace(run.length, run.start);
  blocks_ += run.length;
}

void FreeRuns::Erase(int32_t start, int32_t length) {
  runs_.erase(start);
  by_length_.erase({length, start});
  blocks_ -= length;
}

void FreeRuns::Insert(BlockId block) {
  Run joined{block.value, 1};
  auto after = runs_.upper_bound(block.value);
  if (after != runs_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == block.value) {
      joined = {before->first, before->second + 1};
      Erase(before->first, before->second);
    }
  }
  after = runs_.find(block.value + 1);
  if (after != runs_.end()) {
    const auto [start, length] = *after;
    Erase(start, length);
    joined.length += length;
  }
  Insert(joined);
}

}  // namespace skein::scheduler
