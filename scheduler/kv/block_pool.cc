#include "scheduler/kv/block_pool.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

BlockPool::BlockPool(int64_t total) {
  SKEIN_CHECK_MSG(total >= 1 && total <= INT32_MAX, "a pool has 1 … 2^31 - 1 blocks");
  blocks_.resize(total);
  InsertRun(0, static_cast<int32_t>(total));
  counts_.free = counts_.total = total;
}

absl::StatusOr<BlockTable> BlockPool::Allocate(int64_t count) {
  SKEIN_CHECK_MSG(count >= 1, "an allocation has at least one block");
  if (count > counts_.free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("KV blocks: ", count, " wanted, ", counts_.free, " free"));
  }
  std::vector<BlockId> blocks;
  blocks.reserve(count);
  while (static_cast<int64_t>(blocks.size()) < count) {
    const auto wanted = static_cast<int32_t>(count - blocks.size());
    auto run = runs_by_length_.lower_bound({wanted, 0});
    if (run == runs_by_length_.end()) {  // no run is large enough: take the lowest of the longest
      run = runs_by_length_.lower_bound({runs_by_length_.rbegin()->first, 0});
    }
    const auto [length, start] = *run;
    TakeFromRun(start, length, std::min(wanted, length), &blocks);
  }
  return std::make_shared<const std::vector<BlockId>>(std::move(blocks));
}

absl::StatusOr<BlockTable> BlockPool::Extend(const BlockTable& table, int64_t count) {
  if (table == nullptr) return Allocate(count);
  const int64_t more = count - static_cast<int64_t>(table->size());
  if (more <= 0) return table;
  absl::StatusOr<BlockTable> added = Allocate(more);
  if (!added.ok()) return added.status();
  std::vector<BlockId> blocks(*table);
  blocks.insert(blocks.end(), (*added)->begin(), (*added)->end());
  return std::make_shared<const std::vector<BlockId>>(std::move(blocks));
}

void BlockPool::Share(std::span<const BlockId> blocks) {
  for (const BlockId id : blocks) {
    Block block = InUse(id, "only held blocks are shared");
    ++block.tables;
    Change(id, block);
  }
}

void BlockPool::Free(std::span<const BlockId> blocks) {
  for (const BlockId id : blocks) {
    Block block = InUse(id, "block freed twice");
    --block.tables;
    Change(id, block);
  }
}

void BlockPool::Quarantine(std::span<const BlockId> blocks) {
  for (const BlockId id : blocks) {
    Block block = InUse(id, "only held blocks are quarantined");
    --block.tables;
    ++block.quarantines;
    Change(id, block);
  }
}

void BlockPool::EndQuarantine(std::span<const BlockId> blocks) {
  for (const BlockId id : blocks) {
    SKEIN_CHECK_MSG(id.value >= 0 && id.value < counts_.total, "block out of range");
    Block block = blocks_[id.value];
    SKEIN_CHECK_MSG(block.quarantines > 0, "the block is not in quarantine");
    --block.quarantines;
    Change(id, block);
  }
}

BlockPool::Block BlockPool::InUse(BlockId block, const char* otherwise) const {
  SKEIN_CHECK_MSG(block.value >= 0 && block.value < counts_.total, "block out of range");
  SKEIN_CHECK_MSG(blocks_[block.value].tables > 0, otherwise);
  return blocks_[block.value];
}

void BlockPool::Count(const Block& block, int64_t times, BlockCounts* counts) {
  counts->free += block.Free() ? times : 0;
  counts->held += block.Free() ? 0 : times;
  counts->quarantined += block.tables == 0 && block.quarantines > 0 ? times : 0;
  counts->shared += block.tables > 1 ? times : 0;
}

void BlockPool::Change(BlockId id, const Block& to) {
  Block& block = blocks_[id.value];
  Count(block, -1, &counts_);
  Count(to, 1, &counts_);
  block = to;
  if (block.Free()) ReturnToRuns(id);
}

void BlockPool::TakeFromRun(int32_t start, int32_t length, int32_t count,
                            std::vector<BlockId>* out) {
  EraseRun(start, length);
  for (int32_t i = 0; i < count; ++i) {
    const BlockId block{start + i};
    Change(block, {.tables = 1});
    out->push_back(block);
  }
  if (length > count) InsertRun(start + count, length - count);
}

void BlockPool::InsertRun(int32_t start, int32_t length) {
  runs_.emplace(start, length);
  runs_by_length_.emplace(length, start);
}

void BlockPool::EraseRun(int32_t start, int32_t length) {
  runs_.erase(start);
  runs_by_length_.erase({length, start});
}

void BlockPool::ReturnToRuns(BlockId block) {
  int32_t start = block.value;
  int32_t length = 1;
  auto after = runs_.upper_bound(start);
  if (after != runs_.begin()) {
    const auto before = std::prev(after);
    if (before->first + before->second == start) {
      const auto [run_start, run_length] = *before;
      EraseRun(run_start, run_length);
      start = run_start;
      length += run_length;
    }
  }
  after = runs_.find(block.value + 1);
  if (after != runs_.end()) {
    const auto [run_start, run_length] = *after;
    EraseRun(run_start, run_length);
    length += run_length;
  }
  InsertRun(start, length);
}

absl::Status BlockPool::CheckInvariants() const {
  BlockCounts counted;
  counted.total = static_cast<int64_t>(blocks_.size());
  for (const Block& block : blocks_) Count(block, 1, &counted);
  if (!(counted == counts_) || counts_.free + counts_.held + counts_.cached != counts_.total) {
    return absl::InternalError(absl::StrCat(
        "BlockPool 1: counts: ", counts_.free, " free + ", counts_.held, " held + ", counts_.cached,
        " cached of ", counts_.total, "; counted block by block: ", counted.free, " free + ",
        counted.held, " held"));
  }
  int64_t in_runs = 0;
  int32_t end_of_last = -1;
  for (const auto& [start, length] : runs_) {
    if (start <= end_of_last || runs_by_length_.count({length, start}) != 1) {
      return absl::InternalError(absl::StrCat("BlockPool 2: the free run at block ", start,
                                              " overlaps another one or is in one index only"));
    }
    for (int32_t i = start; i < start + length; ++i) {
      if (!blocks_[i].Free()) {
        return absl::InternalError(
            absl::StrCat("BlockPool 2: block ", i, " is in a free run but not free"));
      }
    }
    end_of_last = start + length;
    in_runs += length;
  }
  if (in_runs != counts_.free || runs_.size() != runs_by_length_.size()) {
    return absl::InternalError(
        absl::StrCat("BlockPool 2: ", in_runs, " blocks in free runs, ", counts_.free, " free"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
