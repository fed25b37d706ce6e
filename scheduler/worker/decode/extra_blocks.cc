#include "scheduler/worker/decode/extra_blocks.h"

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

void ExtraBlocks::Come(BlockRange extra) {
  SKEIN_CHECK(!here_);
  if (extra.count == 0) return;
  here_ = true;
  parts_.kv_in->Grow(extra);
}

bool ExtraBlocks::MayGo() {
  if (!here_) return true;
  const TimeUs now = parts_.clock->now;
  if (asked_us_ == kNever) {
    asked_us_ = now;
    parts_.kv_in->Shrink();
  }
  const KvIn::Going going = parts_.kv_in->LookAtGoing();
  return going.awaited == 0 || (now >= asked_us_ + 2 * wait_us_ && going.coming.empty());
}

std::vector<BlockMove> ExtraBlocks::Go() {
  if (!here_) return {};
  here_ = false;
  asked_us_ = kNever;
  return parts_.running->LeaveGoing();
}

void ExtraBlocks::RunTimers() {
  if (asked_us_ == kNever || parts_.clock->now < asked_us_ + wait_us_) return;
  for (const RequestId id : parts_.kv_in->LookAtGoing().coming) {
    parts_.ends->Touch(id);
    parts_.ends->End(parts_.sequences->at(id), FinishReason::kError,
                     absl::UnavailableError("the instance takes its weights back, and with "
                                            "them the blocks that the KV was coming into"));
  }
}

TimeUs ExtraBlocks::NextDeadline() const {
  if (asked_us_ == kNever) return kNever;
  for (const TimeUs end : {asked_us_ + wait_us_, asked_us_ + 2 * wait_us_}) {
    if (parts_.clock->now < end) return end;
  }
  return kNever;  // a step is waited for
}

}  // namespace skein::scheduler
