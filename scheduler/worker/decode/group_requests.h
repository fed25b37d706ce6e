// GroupRequests: requests that the bound group of this instance computes from their first token on
// (AnnounceOf::formation). Nobody writes their KV and they take no blocks of this instance alone:
// the group's batch has them. Owns nothing: DecodeOrders knows which are announced so, BoundGroup
// has the batch. Part of DecodeCore, and used only on its thread. A call costs O(those that are
// announced so), plus the prompts of those that join.
//
// A request joins as soon as it can, and is opened then. It waits, announced, while as many
// requests are here as may be, or an older epoch of it has blocks. It ends without having begun:
//   UNAVAILABLE         that formation is bound here no more, or is being released; this instance
//                       drains or its engine has failed. It is to be planned again.
//   UNIMPLEMENTED       it wants logprobs of its prompt, or no token: only a prefill instance does
//   so INVALID_ARGUMENT    it is longer than the engine's positions, or cannot be told to the
//   members RESOURCE_EXHAUSTED  its tokens can never fit the group; the message names both numbers
#pragma once

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/worker/decode/decode_clock.h"
#include "scheduler/worker/decode/decode_orders.h"
#include "scheduler/worker/decode/decode_sequences.h"
#include "scheduler/worker/decode/transfer_opening.h"
#include "scheduler/worker/group/bound_group.h"
#include "scheduler/worker/kv_in/kv_in.h"

namespace skein::scheduler {

class GroupRequests {
 public:
  // Not owned; they outlive it.
  struct Parts {
    const DecodeClock* clock = nullptr;
    const KvIn* kv_in = nullptr;
    DecodeSequences* sequences = nullptr;
    DecodeOrders* orders = nullptr;
    TransferOpening* opening = nullptr;
    BoundGroup* group = nullptr;
  };
  explicit GroupRequests(const Parts& parts) : parts_(parts) {}

  // Each of those that are announced for a group joins it, waits, or ends.
  void Join();

 private:
  bool MustWait(RequestId id) const;
  absl::Status MayJoin(const DecodeOrders::Announced& announced) const;
  absl::Status JoinOne(RequestId id);

  const Parts parts_;
};

}  // namespace skein::scheduler
