// The blocks of sequences that run: they are taken as tokens come, and given up for others
// (block_order.h says in which order, and why that ends).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/worker/decode/decode_impl.h"

namespace skein::scheduler {

// Blocks that stay free when a sequence enters, for the growth of those that are here: two for
// each, at most a quarter of the pool. More would leave blocks unused, since others end meanwhile;
// less would preempt more often. In a saturated pool of 512 blocks with Azure's conversation
// lengths after prompts of 64 tokens, 1/4, 1, 2 and 3 blocks a sequence gave 0.99, 0.96, 0.91 and
// 0.86 of the streams that could ever run, and 0.84, 0.24, 0.06 and 0.02 preemptions an answer.
int64_t DecodeCore::Impl::Headroom() const {
  const int64_t here = sequences_.Count(Phase::kReceiving) + sequences_.Count(Phase::kRunning);
  return std::min(2 * here, kv_in_.blocks().total / 4);
}

// RESOURCE_EXHAUSTED: a sequence that needs so many blocks must wait.
absl::Status DecodeCore::Impl::HasRoom(int64_t blocks) const {
  const int64_t free = kv_in_.blocks().free;
  if (blocks + Headroom() <= free) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("KV blocks: ", blocks, " wanted, ", free,
                                                   " free, of which ", Headroom(),
                                                   " are kept for the sequences here"));
}

void DecodeCore::Impl::WantBlock(const Sequence& sequence) {
  if (!kv_in_.Covers(sequence.id(), sequence.KnownTokens())) block_order_.Want(sequence.id());
}

void DecodeCore::Impl::GrowTables() {
  while (const std::optional<RequestId> id = block_order_.FirstWanting()) {
    const Sequence& sequence = sequences_.at(*id);
    if (!TakeBlock(sequence)) return batch_.Remove(*id);  // it waits; all behind it are preempted
    block_order_.Satisfy(*id);
    const int64_t known = sequence.KnownTokens();
    if (!batch_.Has(*id)) batch_.Add(*id, PlanSequence{sequence.epoch.value}, known, known - 1);
  }
  ResumePreempted();
}

bool DecodeCore::Impl::TakeBlock(const Sequence& sequence) {
  const RequestId id = sequence.id();
  while (!kv_in_.Extend(id, sequence.KnownTokens()).ok()) {
    const std::optional<RequestId> victim = block_order_.VictimFor(id);
    if (!victim.has_value()) return false;
    Preempt(sequences_.at(*victim));
  }
  return true;
}

void DecodeCore::Impl::Preempt(Sequence& sequence) {
  const RequestId id = sequence.id();
  batch_.Remove(id);
  kv_in_.Release(id, Listening());
  block_order_.Preempt(id);
  sequences_.Preempt(sequence);
  ++preemptions_;
  membership_.Holds(
      {.id = id, .epoch = sequence.epoch, .opened = true, .preemptions = sequence.preemptions});
  membership_.ReportSoon();
}

void DecodeCore::Impl::ResumePreempted() {
  while (const std::optional<RequestId> id = block_order_.FirstPreempted()) {
    Sequence& sequence = sequences_.at(*id);
    const int64_t known = sequence.KnownTokens();
    if (!HasRoom(kv_in_.BlocksFor(known)).ok()) return;
    if (!kv_in_.Resume(sequence.spec, sequence.epoch, known).ok()) return;
    block_order_.Resume(*id);
    sequences_.Resume(sequence);
    batch_.Add(*id, PlanSequence{sequence.epoch.value}, known, 0);
    recomputed_tokens_ += static_cast<uint64_t>(known - 1);
  }
}

}  // namespace skein::scheduler
