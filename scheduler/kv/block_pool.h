// BlockPool: which KV blocks of one instance are free. Deterministic. Prefers contiguous runs, so
// that the puts of a handoff coalesce: best fit (the smallest free run that is large enough, the
// lowest of equals); if none is, the largest runs first.
//
// Invariants, by number:
// 1. free + held + cached == total, recounted from the blocks' states.
//   2. A block is in exactly one state; the free runs are disjoint, maximal and cover the free
//      blocks.
//   3. Only held blocks can be freed or quarantined (a double free ends the process).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"

namespace skein::scheduler {

// Blocks of one sequence in token order. Immutable, because a step in flight may read it; extending
// makes a new table.
using BlockTable = std::shared_ptr<const std::vector<BlockId>>;

struct BlockCounts {
  int64_t free = 0;
  int64_t held = 0;  // including quarantined blocks
  int64_t cached = 0;
  int64_t quarantined = 0;
  int64_t total = 0;
  bool operator==(const BlockCounts&) const = default;
};

class BlockPool {
 public:
  explicit BlockPool(int64_t total);

  // Holds `count` >= 1 blocks. RESOURCE_EXHAUSTED when fewer are free.
  absl::StatusOr<BlockTable> Allocate(int64_t count);

  // Returns `table` (nullptr: empty) extended to `count` blocks. RESOURCE_EXHAUSTED when fewer are
  // free; then nothing has changed. REQUIRES: count >= 1.
  absl::StatusOr<BlockTable> Extend(const BlockTable& table, int64_t count);

  // Frees held or quarantined blocks.
  void Free(std::span<const BlockId> blocks);

  // Marks held blocks as unused, but still reachable by a late remote write. They count as held
  // until they are freed.
  void Quarantine(std::span<const BlockId> blocks);

  BlockCounts Counts() const { return counts_; }

  // INTERNAL naming the violated invariant.
  absl::Status CheckInvariants() const;

 private:
  enum class State : uint8_t { kFree, kHeld, kQuarantined };

  void TakeFromRun(int32_t start, int32_t length, int32_t count, std::vector<BlockId>* out);
  void InsertRun(int32_t start, int32_t length);
  void EraseRun(int32_t start, int32_t length);
  void ReturnToRuns(BlockId block);

  std::vector<State> states_;
  std::map<int32_t, int32_t> runs_;                       // start -> length of each free run
  std::set<std::pair<int32_t, int32_t>> runs_by_length_;  // (length, start)
  BlockCounts counts_;
};

}  // namespace skein::scheduler
