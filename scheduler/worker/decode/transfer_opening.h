// TransferOpening: the first OpenTransfer of an announced request at a decode-worker takes blocks
// for its prompt, or is refused, or waits: for the announcement that names its writer, or for the
// blocks of an older epoch. Owns the OpenTransfers that wait. Part of DecodeCore, and used only on
// its thread. A call costs O(log requests), plus the calls that wait for the request.
//
// Of a request that is announced for the bound group that this instance leads, every rank keeps
// blocks (BoundGroup::Reserve); its OpenTransfers wait until all have answered, and are refused
// with RESOURCE_EXHAUSTED if that group is bound no more, so that the prompt's KV, which its
// prefill instance has, may go elsewhere. With staging buffers KV comes in the layout of an
// instance alone, whatever the announcement says.
//
// While the instance is being bound and its own sequences are to end first (BoundGroup::TakesOwn),
// it refuses as a full one does.
//
// An entering request leaves some blocks free for the growth of those that are here
// (running_batch.h), and enters only if all its tokens fit the pool: it may have to be recomputed
// when it is alone.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/worker/decode/decode_clock.h"
#include "scheduler/worker/decode/decode_events.h"
#include "scheduler/worker/decode/decode_orders.h"
#include "scheduler/worker/decode/decode_sequences.h"
#include "scheduler/worker/decode/expected_streams.h"
#include "scheduler/worker/decode/running_batch.h"
#include "scheduler/worker/group/bound_group.h"
#include "scheduler/worker/kv_in/kv_in.h"
#include "scheduler/worker/kv_in/waiting_opens.h"
#include "scheduler/worker/membership/membership.h"
#include "scheduler/worker/steps/step_loop.h"

namespace skein::scheduler {

struct OpeningConfig {
  TimeUs open_wait_us = 0;          // how long an OpenTransfer may wait
  TimeUs attach_lease_us = 0;       // for the router of a request that has entered
  int64_t max_requests = 0;         // with blocks, at a time
  int64_t max_sequence_tokens = 0;  // prompt + max_tokens; 0: no limit
};

class TransferOpening {
 public:
  // Not owned; they outlive it.
  struct Parts {
    const DecodeClock* clock = nullptr;
    KvIn* kv_in = nullptr;
    DecodeSequences* sequences = nullptr;
    ExpectedStreams* expected_streams = nullptr;
    DecodeOrders* orders = nullptr;
    RunningBatch* running = nullptr;
    BoundGroup* group = nullptr;
    Membership* membership = nullptr;
    const StepLoop* steps = nullptr;
    std::vector<DecodeEffect>* effects = nullptr;
  };
  TransferOpening(const OpeningConfig& config, const Parts& parts)
      : config_(config), parts_(parts) {}

  void On(const OpenTransferCalled& event) {
    Open(event, parts_.clock->now + config_.open_wait_us);
  }
  void Retry(RequestId id);  // the calls that wait for it: something about it has changed
  void RunTimers();          // refuses calls that have waited for too long

  // OK: the request may enter with so many further blocks. RESOURCE_EXHAUSTED: another instance may
  // take it.
  absl::Status MayOpen(const DecodeOrders::Announced& announced, int64_t blocks) const;
  // OK: this instance may run it, whoever has its KV. RESOURCE_EXHAUSTED: another one may take it.
  absl::Status MayRun(const DecodeOrders::Announced& announced) const;
  absl::Status FitsAlone(const RequestSpec& spec) const;  // all its tokens, in the pool
  bool Full() const;                                      // as many are here as may be
  // It has blocks now, or needs none of this instance alone: it becomes a sequence, receiving; a
  // router that has come for it is attached.
  // REQUIRES: it is announced, and no older epoch of it has blocks.
  DecodeSequence& Enter(RequestId id);

  TimeUs NextDeadline() const { return waiting_.NextDeadline(); }
  absl::Status CheckInvariants() const { return waiting_.CheckInvariants(); }

 private:
  void Open(const OpenTransferCalled& call, TimeUs until_us);
  void OpenAnnounced(const OpenTransferCalled& call, TimeUs until_us);
  bool IsPermitted(const OpenTransferRequest& request) const;
  void Refuse(const OpenTransferCalled& call, const absl::Status& status);
  void HoldOrRefuse(const OpenTransferCalled& call, TimeUs until_us, const absl::Status& status);
  absl::Status CheckTokens(const RequestSpec& spec) const;
  absl::Status NotFull() const;
  absl::Status TakeBlocks(const DecodeOrders::Announced& announced);
  absl::Status ReserveInGroup(const DecodeOrders::Announced& announced);

  const OpeningConfig config_;
  const Parts parts_;
  WaitingOpens waiting_;
};

}  // namespace skein::scheduler
