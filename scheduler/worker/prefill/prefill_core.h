// PrefillCore: every decision of a prefill-worker. One thread owns it.
//
// Life of a request here. It has two states (prefill_requests.h), which move side by side:
//   its prompt    queued (for blocks) -> computing -> computed -> gone
//   its transfer  unplaced -> placed (being opened) -> opened (the decode side has granted blocks)
// A plain request computes as soon as it has blocks. Meanwhile its transfer is opened at the decode
// instance that the plan names, or the lead asks for one (PlaceDecode). If that instance refuses,
// the request is unplaced again and asks for another; what is computed stays. KV moves once the
// decode side has granted blocks and a layer is written. If the grant comes last, the whole prompt
// moves at once. So a first token does not wait for the round trip, and a prompt that waits for
// decode room takes none of it while it is computed. "Opened" is told to the orchestrator exactly
// when the decode side has granted blocks. A request that was cancelled or failed is *ending*: it
// leaves when neither the step in flight nor its handoff touches its blocks any more.
//
// A request of an SP plan (AssignRequest with members) computes only its share of the prompt
// here, piece by piece (scheduler/kv/deal.h), each piece in one step together with the other
// members. It holds blocks for all it will compute and receive, and computes nothing before the
// transfer is open, since the others would wait for it in the ring: the plan's lead opens the
// transfer, the others wait for Start. Ring pieces run strictly in (sequence, chunk, piece) order
// over all SP plans assigned here, started or not. Assigns come in the order of their sequences, so
// all instances run pieces in one global order, and the first unfinished one can always run. A plan
// that did not reach all its members is cancelled at the others. Plain prompts of a smaller
// sequence go before a piece, others, and unplaced ones, only while no piece can run. Blocks are
// given out in the order of the sequences.
//
// No deadlock. A plain request that computes waits for no other, so its computing adds no wait to
// those that decode_placement.h (the orchestrator's) orders. An unplaced request holds prefill
// blocks while it waits for decode room. An older SP plan may hold that room and wait for these
// blocks. To break this cycle, the orchestrator answers RESOURCE_EXHAUSTED, and the plain request
// *yields*: it gives its blocks back and is queued again. If a step has it, that happens at the
// step's end, which is bounded (steps/engine_watch.h). What it had computed is lost. It yields only
// to SP plans before it, which are finitely many, so it is computed in the end. No placed plain
// request needs to yield: its decode side answers within a bound, and once opened it ends by
// itself.
//
// If the decode side answers OpenTransfer with staging slots, KV goes through a staging buffer
// (scheduler/kv/staging_buffer_queue.h), asked for when the handoff sender has something to put,
// given back when it has had nothing for a while. The sender tells the parts that arrived; they are
// told to the decode side one call at a time, and back to the sender when they were taken.
//
// An event costs the logarithm of the number of requests, and as much as its step has sequences; a
// report costs what it lists. A registration, a drain and an engine that fails concern all
// requests, and look at each once.
//
// Invariants, by number (CheckInvariants names them):
//   1. Blocks held in the pool are exactly those of the requests that have a table, and the kept.
//   2. A request in the step in flight or with a handoff under way keeps its blocks.
//   3. Requests get their blocks, and so first ask for a place or open their transfers, in the
//      order of plan_queue.h: fairly by tenant, of one tenant in plan-sequence order. The lead of
//      an SP plan computes only with an open transfer.
//   4. Every accepted (id, epoch) ends exactly once, in a report's `ended`.
//   5. Each part's own: pool, batch.
//   6. The aggregates over all requests (which are in front, the load, the earliest timer), the
//      batch and the transfers agree with the requests.
//   7. Every local block holds at most one block of one prompt; an SP plan's next piece is one
//      of those that were promised by its Assigns, in their order.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/batch/batch_scheduler.h"
#include "scheduler/kv/block_pool.h"
#include "scheduler/worker/membership/membership_events.h"
#include "scheduler/worker/prefill/prefill_events.h"
#include "scheduler/worker/steps/engine_watch.h"
#include "scheduler/worker/steps/ring_step_limits.h"
#include "scheduler/worker/worker_snapshot.h"

namespace skein::scheduler {

struct PrefillConfig {
  MembershipConfig membership;
  BatchLimits batch;
  int64_t max_requests = 256;       // accepted at a time
  int64_t max_sequence_tokens = 0;  // prompt + max_tokens; the engine's max_positions (0: no limit)
  // Limit of requests that ask for a place, open a transfer or compute. More may, while the step in
  // flight and the next one have room for them: short prompts must not wait for each other's
  // answers.
  int64_t open_ahead = 4;
  TimeUs rpc_timeout_us = kSecondUs;
  TimeUs acquire_timeout_us =
      2 * kSecondUs;  // the decode side answers AcquireStagingBuffer before this
  TimeUs retry_us = 50 * kMillisecondUs;  // between attempts
  int attempts = 3;                       // of OpenTransfer and Commit
  // A request that needs its place waits so long for the stream to the orchestrator.
  TimeUs place_decode_give_up_us = 10 * kSecondUs;
  TimeUs request_deadline_us = 600 * kSecondUs;  // when the spec names none
  // A free member waits for the one with the longest queue, and for one with a hung engine until
  // this limit. Failed or leaving members are noticed much earlier. `batch.max_batch_tokens` is
  // what one member computes in a step, equal at all instances that share plans; the orchestrator
  // registers no others.
  RingStepLimits ring_step;
  // Time that KV of a prompt is kept after its request has left, for the next attempt at it, unless
  // others need the blocks (kept_prompts.h). 0: none is.
  TimeUs keep_us = 60 * kSecondUs;
  // Time that an instance joining a running plan waits for blocks; two plans may wait for each
  // other's.
  TimeUs join_wait_us = 5 * kSecondUs;
  EngineWatchConfig engine;
};

struct PrefillSnapshot : WorkerSnapshot {
  int64_t queued = 0;      // for blocks
  int64_t asking = 0;      // for decode blocks: of an SP plan, or computed already
  int64_t computing = 0;   // prompt not yet computed, with decode blocks or without
  int64_t committing = 0;  // computed, decode blocks granted, KV not yet taken
  int64_t ending = 0;
  int64_t handoffs = 0;        // KV on its way to a decode instance
  uint64_t prompt_tokens = 0;  // computed since the start
  uint64_t kept_tokens = 0;    // not computed again: an attempt before had done it
  uint64_t committed = 0;
};

class PrefillCore {
 public:
  explicit PrefillCore(const PrefillConfig& config);
  ~PrefillCore();

  // The shell starts by handling a Tick. Total: any event in any state is safe.
  std::vector<PrefillEffect> Handle(const PrefillEvent& event, TimeUs now);
  // When the next Tick is due, kNever if none is.
  TimeUs NextDeadline() const;
  // Of a Cancel: INVALID_ARGUMENT if nobody can have issued the epoch. Handle ignores such a one.
  absl::Status CheckEpoch(Epoch epoch) const;
  absl::Status CheckInvariants() const;
  PrefillSnapshot Snapshot(TimeUs now) const;
  // The state of a request's record, by name; empty when there is none. For tests and people.
  std::string_view StateOf(RequestId id) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skein::scheduler
