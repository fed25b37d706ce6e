// PrefillCore: every decision of a prefill-worker. One thread owns it.
//
// Life of a request here: queued -> asking (blocks held, BeginPrefill under way) -> placed
// (computing chunk after chunk; grant asked for at the same time; handoff running once granted) ->
// committing -> gone. A request that was cancelled or failed is *ending*: it leaves when neither
// the step in flight nor its handoff touches its blocks any more.
//
// A request of a spanning plan (AssignRequest with members) computes only its share of the prompt
// here, piece by piece (scheduler/kv/deal.h), each piece in one step together with the other
// members. It holds blocks for all it will compute and receive. The plan's lead asks BeginPrefill,
// the others wait for Start. Spanning pieces run strictly in (sequence, chunk, piece) order over
// all spanning plans assigned here, started or not. Assigns come in the order of their sequences:
// so all instances run pieces in one global order and the first unfinished one can always run; a
// plan that did not reach all its members is cancelled at the others. Plain prompts of a smaller sequence go before a piece, others only while no piece can run.
// Blocks are given out in the same order. A plain prompt that waits for decode room gives its
// blocks back to a spanning plan before it.
//
// A decode side that answers the Grant with staging slots is written to through a backend
// (scheduler/kv/backend_queue.h), asked for when the handoff sender has something to put, given
// back when it has had nothing for a while. The sender tells the parts that arrived; they are told
// to the decode side one call at a time, and back to the sender when they were taken.
//
// Invariants, by number (CheckInvariants names them):
//   1. Blocks held in the pool are exactly those of the requests that have a table.
//   2. A request in the step in flight or with a handoff under way keeps its blocks.
//   3. Requests ask BeginPrefill in plan-sequence order.
//   4. Every accepted (id, epoch) ends exactly once, in a report's `ended`.
//   5. Each part's own: pool, batch.
//   6. What is remembered of all requests (who is in front, the earliest timer) agrees with them.
//   7. Every local block holds at most one block of one prompt; a spanning plan's next piece is one
//      of those that were promised by its Assigns, in their order.
#pragma once

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/time.h"
#include "scheduler/batch/batch_scheduler.h"
#include "scheduler/kv/block_pool.h"
#include "scheduler/worker/engine_watch.h"
#include "scheduler/worker/membership_events.h"
#include "scheduler/worker/step.h"

namespace skein::scheduler {

// ---- events ----

struct AssignCalled {
  CallId call;
  AssignRequest request;
};
struct StartCalled {
  StartRequest request;
};
// Answers to calls.
template <class Reply>
struct Replied {
  RequestId id;
  Epoch epoch;
  Reply reply;
};
using BeginPrefillReplied = Replied<BeginPrefillReply>;
using GrantReplied = Replied<GrantReply>;
using RenewReplied = Replied<RenewReply>;
using CommitReplied = Replied<CommitReply>;
template <class Reply>
struct NumberedReplied {
  RequestId id;
  Epoch epoch;
  uint64_t number = 0;  // the call's `ask`, or `part`
  Reply reply;
};
using AskBackendReplied = NumberedReplied<AskBackendReply>;
using TakePartReplied = NumberedReplied<TakePartReply>;
using ReleaseBackendReplied = NumberedReplied<ReleaseBackendReply>;
// The handoff sender's words about a staged handoff. It has something to put and no buffer: said
// once until UseBackend.
struct HandoffWaits {
  RequestId id;
  Epoch epoch;
};
// These blocks lie in their slots; none of a part is reused before PartTaken.
struct HandoffPart {
  RequestId id;
  Epoch epoch;
  std::vector<StagedBlock> blocks;
};
// It has had nothing to put for a while, nothing of it is under way, and it touches the buffer no
// more before the next UseBackend.
struct HandoffIdle {
  RequestId id;
  Epoch epoch;
};
// The handoff sender's three ends; exactly one for each StartHandoff.
struct HandoffDone {  // every put of every prompt block of every layer completed
  RequestId id;
  Epoch epoch;
  std::vector<int64_t> bytes_per_layer;
};
struct HandoffFailed {  // and no put is under way any more
  RequestId id;
  Epoch epoch;
  absl::Status status;
};
struct HandoffStopped {  // answer to StopHandoff: no put is under way any more
  RequestId id;
  Epoch epoch;
};

using PrefillEvent =
    std::variant<AssignCalled, StartCalled, CancelCalled, BeginPrefillReplied, GrantReplied,
                 RenewReplied, AskBackendReplied, TakePartReplied, ReleaseBackendReplied,
                 CommitReplied, StepDone, HandoffWaits, HandoffPart, HandoffIdle, HandoffDone,
                 HandoffFailed, HandoffStopped, RegisterReplied, ReportReplied, UnregisterReplied,
                 Disconnected, Drain, OrderDrain, Tick>;

// ---- effects ----

struct AnswerAssign {
  CallId call;
  AssignReply reply;
};
struct CallBeginPrefill {  // to the orchestrator, on the stream
  BeginPrefillRequest request;
};
// To the decode instance at `endpoint`, each answered by one ...Replied (CallAbort: none).
template <class Request>
struct DecodeCall {
  std::string endpoint;
  Request request;
  TimeUs timeout_us = 0;
};
using CallGrant = DecodeCall<GrantRequest>;
using CallRenew = DecodeCall<RenewRequest>;
using CallAskBackend = DecodeCall<AskBackendRequest>;
using CallTakePart = DecodeCall<TakePartRequest>;
using CallReleaseBackend = DecodeCall<ReleaseBackendRequest>;
using CallCommit = DecodeCall<CommitRequest>;
using CallAbort = DecodeCall<AbortRequest>;
// A block of a prompt and where this instance keeps it.
struct PutBlock {
  int32_t global = 0;  // position / block_tokens
  BlockId local;
  bool operator==(const PutBlock&) const = default;
};
// This instance is about to compute these blocks of `id`'s prompt (ascending, at least one) and
// will put them, each whole and once, as soon as the layer of the step that fills it is done.
// `more`: AddToHandoff brings further ones. Comes before the first RunStep with the sequence.
struct OpenHandoff {
  RequestId id;
  Epoch epoch;
  SpecPtr spec;
  std::vector<PutBlock> blocks;
  bool more = false;
};
struct AddToHandoff {  // behind those it has
  RequestId id;
  Epoch epoch;
  std::vector<PutBlock> blocks;  // may be none
  bool more = false;
};
// The sender may write what it was opened with to the granted blocks (steps before this effect
// count too). No put is posted after `post_until_us`, and none may take longer than the decode
// side's grace.
struct StartHandoff {
  RequestId id;
  Epoch epoch;
  std::string endpoint;
  std::vector<BlockId> remote_blocks;  // those of the whole prompt, in token order
  std::string memory;                  // for Transport::Connect
  TimeUs post_until_us = 0;
  // > 0: staged. Without remote blocks and memory: a buffer with so many slots comes with
  // UseBackend.
  int32_t staging_slots = 0;
};
struct UseBackend {  // until HandoffIdle or the handoff's end
  RequestId id;
  Epoch epoch;
  std::string memory;
};
struct PartTaken {  // the slots of these blocks may be used again
  RequestId id;
  Epoch epoch;
  std::vector<StagedBlock> blocks;
};
struct ExtendHandoff {  // the lease was renewed
  RequestId id;
  Epoch epoch;
  TimeUs post_until_us = 0;
};
// Post nothing more and answer HandoffStopped when nothing is under way. If the sender's end
// crosses this effect (HandoffDone or HandoffFailed already sent), that end counts and no
// HandoffStopped is needed; the effect is then ignored.
struct StopHandoff {
  RequestId id;
  Epoch epoch;
};

using PrefillEffect =
    std::variant<AnswerAssign, CallBeginPrefill, CallGrant, CallRenew, CallAskBackend,
                 CallTakePart, CallReleaseBackend, CallCommit, CallAbort, RunStep, AbortStep,
                 BreakGroup, OpenHandoff, AddToHandoff, StartHandoff, UseBackend, PartTaken,
                 ExtendHandoff, StopHandoff, CallRegister, CallReport, CallUnregister, CloseStream,
                 EngineFailed, Drained>;

struct PrefillConfig {
  MembershipConfig membership;
  BatchLimits batch;
  int64_t max_requests = 256;       // accepted at a time
  int64_t max_sequence_tokens = 0;  // prompt + max_tokens; the engine's max_positions (0: no limit)
  // Requests that ask for a place or compute, at a time. More may, as long as they are what the
  // step in flight and the next one have room for: short prompts must not wait for each other's
  // answers.
  int64_t begin_ahead = 4;
  TimeUs rpc_timeout_us = kSecondUs;
  TimeUs ask_timeout_us = 2 * kSecondUs;         // the decode side answers AskBackend before this
  TimeUs retry_us = 50 * kMillisecondUs;         // between attempts
  int attempts = 3;                              // of Grant and Commit
  // A request that needs its place waits so long for the stream to the orchestrator.
  TimeUs begin_give_up_us = 10 * kSecondUs;
  TimeUs request_deadline_us = 600 * kSecondUs;  // when the spec names none
  // A spanning step, the wait for the other members included: a member that is free early waits for
  // the one with the longest queue, and for one whose engine hangs until that engine's own timeout
  // (EngineWatch). That members die or give up is heard long before.
  // `batch.max_batch_tokens` is what one member computes in it, the same at all instances that
  // share plans: the orchestrator registers no others.
  TimeUs spanning_step_us = 1200 * kSecondUs;
  // Who joins a running plan waits so long for blocks: two plans may wait for each other's.
  TimeUs join_wait_us = 5 * kSecondUs;
  EngineWatchConfig engine;
};

struct PrefillSnapshot {
  bool registered = false;
  bool draining = false;
  bool stopping = false;      // it drains because its process ends
  bool drained = false;       // it drains, holds nothing, and the orchestrator knows all about it
  absl::Status orchestrator;  // of the latest call to it
  absl::Status engine;        // why it has failed
  InstanceId instance;
  WorkerLoad load;
  BlockCounts blocks;
  int64_t queued = 0;  // not yet asking
  int64_t asking = 0;
  int64_t computing = 0;   // placed, prompt not yet computed
  int64_t committing = 0;  // computed, KV not yet taken
  int64_t ending = 0;
  int64_t handoffs = 0;        // KV on its way to a decode instance
  TimeUs oldest_wait_us = 0;   // of those queued or asking
  uint64_t steps = 0;          // probes are none
  uint64_t probes = 0;         // of the idle engine
  uint64_t prompt_tokens = 0;  // computed since the start
  uint64_t committed = 0;
  uint64_t failed = 0;
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

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skein::scheduler
