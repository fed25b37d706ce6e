// BlockPool: which KV blocks of one instance are free, and how many tables use each of the others.
// Deterministic. Prefers contiguous runs, so that the puts of a handoff coalesce: best fit (the
// smallest free run that is large enough, the lowest of equals); if none is, the largest runs
// first.
//
// A block is free when no table uses it and no quarantine keeps it. Tables that share a block each
// have a reference to it. Shared blocks are only read.
//
// Invariants, by number:
//   1. free + held + cached == total, recounted from the blocks' references.
//   2. The free runs are disjoint, maximal and cover the free blocks.
//   3. Only a block that a table uses can be freed, shared or quarantined (a double free ends the
//      process).
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
  int64_t quarantined = 0;  // that no table uses any more
  int64_t shared = 0;       // of those held: that several tables use
  int64_t total = 0;
  bool operator==(const BlockCounts&) const = default;
};

class BlockPool {
 public:
  explicit BlockPool(int64_t total);

  // Takes `count` >= 1 free blocks, for one table. RESOURCE_EXHAUSTED when fewer are free.
  absl::StatusOr<BlockTable> Allocate(int64_t count);

  // Returns `table` (nullptr: empty) extended to `count` blocks. RESOURCE_EXHAUSTED when fewer are
  // free; then nothing has changed. REQUIRES: count >= 1.
  absl::StatusOr<BlockTable> Extend(const BlockTable& table, int64_t count);

  // One more table uses the blocks.
  void Share(std::span<const BlockId> blocks);

  // A table uses the blocks no longer. Those that no other uses are free.
  void Free(std::span<const BlockId> blocks);

  // A table uses the blocks no longer, but a late remote write may still reach them: none is free
  // before EndQuarantine was called as often.
  void Quarantine(std::span<const BlockId> blocks);
  void EndQuarantine(std::span<const BlockId> blocks);

  BlockCounts Counts() const { return counts_; }

  // INTERNAL naming the violated invariant.
  absl::Status CheckInvariants() const;

 private:
  struct Block {
    int32_t tables = 0;       // that use it
    int32_t quarantines = 0;  // that keep it
    bool Free() const { return tables == 0 && quarantines == 0; }
    bool operator==(const Block&) const = default;
  };

  void Change(BlockId block, const Block& to);
  static void Count(const Block& block, int64_t times, BlockCounts* counts);
  Block InUse(BlockId block, const char* otherwise) const;  // REQUIRES: a table uses it
  void TakeFromRun(int32_t start, int32_t length, int32_t count, std::vector<BlockId>* out);
  void InsertRun(int32_t start, int32_t length);
  void EraseRun(int32_t start, int32_t length);
  void ReturnToRuns(BlockId block);

  std::vector<Block> blocks_;
  std::map<int32_t, int32_t> runs_;                       // start -> length of each free run
  std::set<std::pair<int32_t, int32_t>> runs_by_length_;  // (length, start)
  BlockCounts counts_;
};

}  // namespace skein::scheduler
