// PromptSharing: requests that enter with the blocks of another one's prompt: the choices of an
// answer with n > 1. How, and why so: decode_core.h, "Sharing". Owns nothing: DecodeOrders knows
// which requests wait for a prompt, and KvIn who holds which blocks. Part of DecodeCore, and used
// only on its thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/worker/decode/decode_ends.h"
#include "scheduler/worker/decode/decode_orders.h"
#include "scheduler/worker/decode/decode_sequences.h"
#include "scheduler/worker/decode/running_batch.h"
#include "scheduler/worker/decode/transfer_opening.h"
#include "scheduler/worker/kv_in/kv_in.h"

namespace skein::scheduler {

class PromptSharing {
 public:
  // Not owned; they outlive it.
  struct Parts {
    KvIn* kv_in = nullptr;
    DecodeSequences* sequences = nullptr;
    DecodeOrders* orders = nullptr;
    TransferOpening* opening = nullptr;
    RunningBatch* running = nullptr;
    DecodeEnds* ends = nullptr;
  };
  // `block_tokens`: of a block.
  PromptSharing(int64_t block_tokens, const Parts& parts)
      : block_tokens_(block_tokens), parts_(parts) {}

  // The KV of `from` is whole: those that were announced to share its prompt enter and run, or end
  // with UNAVAILABLE (no room; an older epoch is here) or INVALID_ARGUMENT. REQUIRES: from has its
  // blocks.
  void ShareWithAll(const DecodeSequence& from, const KvIn::Result& result);

 private:
  absl::Status Share(RequestId id, const DecodeSequence& from, const KvIn::Result& result);
  absl::Status MayShare(const DecodeOrders::Announced& announced, const DecodeSequence& from) const;
  int64_t SharedBlocks(const RequestSpec& spec) const;

  const int64_t block_tokens_;
  const Parts parts_;
};

}  // namespace skein::scheduler
