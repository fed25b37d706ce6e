// KV that comes for the bound group that this instance leads.
#include <utility>

#include "scheduler/vocabulary/check.h"
#include "scheduler/worker/kv_in/kv_in.h"

namespace skein::scheduler {

void KvIn::ReserveForGroup(const SpecPtr& spec, Epoch epoch,
                           const std::vector<Incarnation>& writers, KvLayout layout,
                           std::vector<TransferTarget> others, TimeUs now) {
  SKEIN_CHECK(!Has(spec->id) && !loans_.has_value());
  ComingBlocks::Kept kept = coming_.Take({spec->id, epoch});
  Entry entry{.spec = spec, .epoch = epoch};
  entry.blocks = std::move(kept.blocks);
  entry.layout = layout;
  entry.others = std::move(others);
  entry.named.insert(writers.begin(), writers.end());
  entry.grant = kept.grant;
  entry.lease_end_us = now + config_.lease_us;
  ++counts_.reserved;
  Arm(entries_.emplace(spec->id, std::move(entry)).first->second);
}

// Finish has closed the grant; its writers have all committed.
BlockTable KvIn::TakeTable(RequestId id) {
  const auto entry = entries_.extract(id);
  SKEIN_CHECK(entry.mapped().phase == Phase::kWhole && leases_.Of(id) == kNever);
  return entry.mapped().blocks;
}

int64_t KvIn::PromptBlocks(const Entry& entry) const {
  const int64_t block_tokens = TokensPerBlock(entry.layout, config_.shape);
  return (PromptTokens(*entry.spec) + block_tokens - 1) / block_tokens;
}

}  // namespace skein::scheduler
