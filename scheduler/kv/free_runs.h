// FreeRuns: free blocks as maximal runs, so that what is taken is contiguous where it can be. Part
// of BlockPool, whose header says which run is taken. A call costs O(log runs).
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "scheduler/vocabulary/block_id.h"

namespace skein::scheduler {

class FreeRuns {
 public:
  struct Run {
    int32_t start = 0;
    int32_t length = 0;
  };

  // Takes the beginning of one run: of the smallest that has `count`, the lowest of equals, or all
  // of the lowest of the longest. REQUIRES: count >= 1, !empty().
  Run Take(int32_t count);
  void Insert(BlockId block);  // joins it to its neighbours. REQUIRES: it is not here
  void Insert(Run run);        // likewise, where it has none. REQUIRES: length >= 1
  void Clear() {
    runs_.clear();
    by_length_.clear();
    blocks_ = 0;
  }

  bool empty() const { return runs_.empty(); }
  int64_t blocks() const { return blocks_; }
  const std::map<int32_t, int32_t>& all() const { return runs_; }  // start -> length
  bool IsIndexed(int32_t start, int32_t length) const {
    return by_length_.size() == runs_.size() && by_length_.contains({length, start});
  }

 private:
  void Erase(int32_t start, int32_t length);

  std::map<int32_t, int32_t> runs_;                  // start -> length
  std::set<std::pair<int32_t, int32_t>> by_length_;  // (length, start)
  int64_t blocks_ = 0;
};

}  // namespace skein::scheduler
