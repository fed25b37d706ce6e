// BlockPool: which KV blocks of one instance are free, and how many tables use each of the others.
// Deterministic. Prefers contiguous runs, so that the puts of a handoff coalesce: best fit (the
// smallest free run that is large enough, the lowest of equals); if none is, the largest runs
// first.
//
// A block is free when no table uses it and no quarantine keeps it. Tables that share a block each
// have a reference to it. Shared blocks are only read.
//
// Extra blocks come (Grow) and go (Shrink) while the others are used. Own ones are taken first, so
// that few extra ones are in use when they go. From Shrink on none of them is given out: the free
// ones leave the pool at once, and each of the others leaves it when nothing keeps it any more. So
// free + held + cached == total all the time.
//
// Invariants, by number:
//   1. free + held + cached == total, recounted from the blocks' references.
//   2. The free runs are disjoint, maximal and cover the free blocks, of which no extra one goes.
//   3. Only a block that a table uses can be freed, shared or quarantined (a double free ends the
//      process).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "scheduler/base/ids.h"
#include "scheduler/kv/free_runs.h"
#include "scheduler/vocabulary/block_range.h"

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
  // Of `own` blocks, which stay.
  explicit BlockPool(int64_t own);

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

  // The extra blocks come. Those among them that were to go stay. REQUIRES: all blocks of an
  // earlier Grow go (Shrink); `extra` is above the own ones.
  void Grow(BlockRange extra);
  // The extra blocks go. Without any nothing changes.
  void Shrink();
  // The block is an extra one that goes. REQUIRES: it is in use.
  bool Goes(BlockId block) const { return !Stays(block); }
  int64_t going() const { return going_; }  // such blocks
  // An own block takes the place of one that goes, in as many tables; nullopt: no own one is free.
  // The quarantines of `going` stay with it. REQUIRES: a table uses `going`.
  std::optional<BlockId> Replace(BlockId going);

  int64_t own() const { return own_; }
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

  bool IsOwn(BlockId block) const { return block.value < own_; }
  // It is an own one, or an extra one that does not go.
  bool Stays(BlockId block) const {
    return IsOwn(block) ||
           (block.value >= extra_.first.value && block.value < extra_.first.value + extra_.count);
  }
  void Change(BlockId block, const Block& to);
  static void Count(const Block& block, int64_t times, BlockCounts* counts);
  Block InUse(BlockId block, const char* otherwise) const;  // REQUIRES: a table uses it
  void Take(FreeRuns* runs, int64_t count, std::vector<BlockId>* out);
  absl::Status CheckRuns(const FreeRuns& runs, bool own) const;

  const int64_t own_;
  BlockRange extra_;           // that stay
  std::vector<Block> blocks_;  // by id, also those that are no part of the pool
  FreeRuns own_runs_, extra_runs_;
  int64_t going_ = 0;
  BlockCounts counts_;
};

}  // namespace skein::scheduler
