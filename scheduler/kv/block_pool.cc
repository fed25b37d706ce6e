#include "scheduler/kv/block_pool.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

BlockPool::BlockPool(int64_t own) : own_(own) {
  SKEIN_CHECK_MSG(own >= 1 && own <= INT32_MAX, "a pool has 1 … 2^31 - 1 blocks");
  blocks_.resize(own);
  own_runs_.Insert(FreeRuns::Run{0, static_cast<int32_t>(own)});
  counts_.free = counts_.total = own;
}

absl::StatusOr<BlockTable> BlockPool::Allocate(int64_t count) {
  SKEIN_CHECK_MSG(count >= 1, "an allocation has at least one block");
  if (count > counts_.free) {
    return absl::ResourceExhaustedError(
        absl::StrCat("KV blocks: ", count, " wanted, ", counts_.free, " free"));
  }
  std::vector<BlockId> blocks;
  blocks.reserve(count);
  Take(&own_runs_, count, &blocks);
  Take(&extra_runs_, count, &blocks);
  return std::make_shared<const std::vector<BlockId>>(std::move(blocks));
}

// Until there are `count`, or none is left.
void BlockPool::Take(FreeRuns* runs, int64_t count, std::vector<BlockId>* out) {
  while (static_cast<int64_t>(out->size()) < count && !runs->empty()) {
    const FreeRuns::Run run = runs->Take(static_cast<int32_t>(count - out->size()));
    for (int32_t i = 0; i < run.length; ++i) {
      const BlockId block{run.start + i};
      Change(block, {.tables = 1});
      out->push_back(block);
    }
  }
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
    SKEIN_CHECK_MSG(id.value >= 0 && id.value < static_cast<int64_t>(blocks_.size()),
                    "block out of range");
    Block block = blocks_[id.value];
    SKEIN_CHECK_MSG(block.quarantines > 0, "the block is not in quarantine");
    --block.quarantines;
    Change(id, block);
  }
}

BlockPool::Block BlockPool::InUse(BlockId block, const char* otherwise) const {
  SKEIN_CHECK_MSG(block.value >= 0 && block.value < static_cast<int64_t>(blocks_.size()),
                  "block out of range");
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
  if (!block.Free()) return;
  if (Stays(id)) return (IsOwn(id) ? own_runs_ : extra_runs_).Insert(id);
  --counts_.free;
  --counts_.total;
  --going_;
}

// ---- extra blocks ----

void BlockPool::Grow(BlockRange extra) {
  SKEIN_CHECK_MSG(extra_.count == 0, "Shrink comes before another Grow");
  const int64_t end = extra.first.value + extra.count;
  SKEIN_CHECK_MSG(extra.count >= 0 && !IsOwn(extra.first) && end <= INT32_MAX,
                  "extra blocks are above the own ones");
  extra_ = extra;
  blocks_.resize(std::max(blocks_.size(), static_cast<size_t>(end)));
  for (BlockId id = extra.first; id.value < end; ++id.value) {
    if (!blocks_[id.value].Free()) {  // it was to go
      --going_;
      continue;
    }
    extra_runs_.Insert(id);
    ++counts_.free;
    ++counts_.total;
  }
}

void BlockPool::Shrink() {
  counts_.free -= extra_runs_.blocks();
  counts_.total -= extra_runs_.blocks();
  going_ += extra_.count - extra_runs_.blocks();
  extra_runs_.Clear();
  extra_.count = 0;
}

std::optional<BlockId> BlockPool::Replace(BlockId going) {
  const Block block = InUse(going, "only held blocks are replaced");
  SKEIN_CHECK_MSG(Goes(going), "only blocks that go are replaced");
  if (own_runs_.empty()) return std::nullopt;
  const BlockId own{own_runs_.Take(1).start};
  Change(own, {.tables = block.tables});
  Change(going, {.quarantines = block.quarantines});
  return own;
}

// ---- invariants ----

absl::Status BlockPool::CheckInvariants() const {
  BlockCounts counted;
  int64_t going = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const bool stays = Stays({static_cast<int32_t>(i)});
    if (!stays && blocks_[i].Free()) continue;  // no part of the pool
    going += stays ? 0 : 1;
    ++counted.total;
    Count(blocks_[i], 1, &counted);
  }
  if (!(counted == counts_) || going != going_ ||
      counts_.free + counts_.held + counts_.cached != counts_.total) {
    return absl::InternalError(absl::StrCat(
        "BlockPool 1: counts: ", counts_.free, " free + ", counts_.held, " held + ", counts_.cached,
        " cached of ", counts_.total, ", ", going_, " go; counted block by block: ", counted.free,
        " free + ", counted.held, " held of ", counted.total, ", ", going, " go"));
  }
  for (const absl::Status& status : {CheckRuns(own_runs_, true), CheckRuns(extra_runs_, false)}) {
    if (!status.ok()) return status;
  }
  if (own_runs_.blocks() + extra_runs_.blocks() == counts_.free) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("BlockPool 2: ", own_runs_.blocks(), " + ",
                                          extra_runs_.blocks(), " blocks in free runs, ",
                                          counts_.free, " free"));
}

absl::Status BlockPool::CheckRuns(const FreeRuns& runs, bool own) const {
  int64_t in_runs = 0;
  int32_t end_of_last = -1;
  for (const auto& [start, length] : runs.all()) {
    if (start <= end_of_last || !runs.IsIndexed(start, length)) {
      return absl::InternalError(absl::StrCat("BlockPool 2: the free run at block ", start,
                                              " overlaps another one or is in one index only"));
    }
    for (BlockId id{start}; id.value < start + length; ++id.value) {
      if (blocks_[id.value].Free() && Stays(id) && IsOwn(id) == own) continue;
      return absl::InternalError(
          absl::StrCat("BlockPool 2: block ", id.value, " is in a free run but not free"));
    }
    end_of_last = start + length;
    in_runs += length;
  }
  if (in_runs == runs.blocks()) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("BlockPool 2: ", in_runs, " blocks in free runs, ", runs.blocks(), " counted"));
}

}  // namespace skein::scheduler
