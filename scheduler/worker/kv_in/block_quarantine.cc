#include "scheduler/worker/kv_in/block_quarantine.h"

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

void BlockQuarantine::Close(const Attempt& attempt, GrantId grant) {
  if (grant == GrantId{}) return;
  if (closing_.emplace(grant, attempt).second) close_(grant);
}

void BlockQuarantine::Add(const Attempt& attempt, BlockTable blocks, GrantId grant,
                          int64_t copies) {
  SKEIN_CHECK(copies > 0 || closing_.contains(grant));
  pool_->Quarantine(*blocks);
  quarantines_.emplace(attempt, Quarantine{std::move(blocks), grant, copies});
}

std::optional<BlockQuarantine::Attempt> BlockQuarantine::Closed(GrantId grant) {
  const auto closed = closing_.extract(grant);
  if (closed.empty()) return std::nullopt;
  const auto it = Find(closed.mapped(), [&](const auto& one) { return one.grant == grant; });
  if (it != quarantines_.end()) {
    it->second.grant = {};
    FreeIfSafe(it);
  }
  return closed.mapped();
}

bool BlockQuarantine::CopyEnded(const Attempt& attempt) {
  const auto it = Find(attempt, [](const auto& one) { return one.copies > 0; });
  if (it == quarantines_.end()) return false;
  --it->second.copies;
  FreeIfSafe(it);
  return true;
}

void BlockQuarantine::FreeIfSafe(Quarantines::iterator it) {
  const Quarantine& quarantine = it->second;
  if (quarantine.grant != GrantId{} || quarantine.copies > 0) return;
  pool_->EndQuarantine(*quarantine.blocks);
  quarantines_.erase(it);
  freed_ = true;
}

std::set<BlockId> BlockQuarantine::Blocks() const {
  std::set<BlockId> blocks;
  for (const auto& [attempt, quarantine] : quarantines_) {
    blocks.insert(quarantine.blocks->begin(), quarantine.blocks->end());
  }
  return blocks;
}

absl::Status BlockQuarantine::CheckInvariants() const {
  for (const auto& [attempt, quarantine] : quarantines_) {
    if (quarantine.copies > 0 || closing_.contains(quarantine.grant)) continue;
    return absl::InternalError(absl::StrCat("BlockQuarantine: the blocks of ",
                                            ToString(attempt.first),
                                            " wait for no grant and no copy"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
