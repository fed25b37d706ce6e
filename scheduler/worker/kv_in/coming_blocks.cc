#include "scheduler/worker/kv_in/coming_blocks.h"

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

absl::StatusOr<ComingBlocks::Kept> ComingBlocks::Keep(const Attempt& attempt, int64_t blocks) {
  SKEIN_CHECK(!Has(attempt));
  absl::StatusOr<BlockTable> table = pool_->Allocate(blocks);
  if (!table.ok()) return table.status();
  return kept_.emplace(attempt, Kept{*std::move(table), new_grant_()}).first->second;
}

ComingBlocks::Kept ComingBlocks::Take(const Attempt& attempt) {
  SKEIN_CHECK(Has(attempt));
  return std::move(kept_.extract(attempt).mapped());
}

BlockTable ComingBlocks::TakeWhole(const Attempt& attempt) {
  Kept kept = Take(attempt);
  quarantine_->Close(attempt, kept.grant);
  return std::move(kept.blocks);
}

void ComingBlocks::Drop(const Attempt& attempt) {
  if (!Has(attempt)) return;
  const Kept kept = Take(attempt);
  quarantine_->Close(attempt, kept.grant);
  quarantine_->Add(attempt, kept.blocks, kept.grant, /*copies=*/0);
}

void ComingBlocks::DropAll() {
  while (!kept_.empty()) Drop(kept_.begin()->first);
}

}  // namespace skein::scheduler
