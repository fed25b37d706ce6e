// The messages between the four roles, one to one with proto/ (services/codec converts).
//
// A worker and the orchestrator exchange them over one stream that the worker opens, and so do a
// router and the orchestrator. While it stands messages arrive once and in the order of sending;
// when it breaks, some that were sent last may not have arrived, and the next stream begins with a
// RegisterRequest or RouterHello, which tells the state of the worker or router. The first message
// back tells the orchestrator's generation; all messages of the stream are of that generation.
//
// All others are calls: a Request and exactly one Reply; the caller's shell makes the reply itself
// when there is none (UNAVAILABLE, DEADLINE_EXCEEDED; the callee may or may not have executed the
// call).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/kv/kv_shape.h"
#include "scheduler/vocabulary/staged_block.h"

namespace skein::scheduler {

// ---- orchestrator -> router ----

struct Planned {
  Epoch epoch;
  InstanceId prefill;
  TimeUs decided_us = 0;  // from the submission to the decision
};

// The decode instance has taken the blocks: attach to it on StreamTokens.
struct Placed {
  Epoch epoch;
  InstanceId decode;
  std::string endpoint;
};

// The request has failed; the last update of it.
struct Failed {
  absl::Status status;
};

// The request is not refused: it waits for its plan. Not sent when the plan comes at once.
struct Accepted {};

// The orchestrator has done with the request: its decode instance said that it ended there. The
// last update of it.
struct PlanEnded {};

using PlanUpdate = std::variant<Planned, Placed, Failed, Accepted, PlanEnded>;

// ---- orchestrator -> prefill ----

// An instance that computes a part of a prompt.
struct PlanMember {
  InstanceId instance;
  Incarnation incarnation;
  std::string endpoint;
  std::string comm_address;  // how its communicators are reached; no core looks inside
};

// A span of the prompt and the instances that compute it together. All members of the chunk before
// it are among its members.
struct PlanChunk {
  int64_t tokens = 0;             // whole blocks, but in the prompt's last chunk
  std::vector<uint32_t> members;  // indexes into AssignRequest::members; the order is the rank
};

// Refused with UNAVAILABLE (draining), RESOURCE_EXHAUSTED (queue full), INVALID_ARGUMENT (can never
// fit, or a plan that is none), FAILED_PRECONDITION (stale epoch).
//
// Without members the plan is plain: the instance computes the whole prompt alone. Otherwise it is
// an SP plan: every member of any chunk is sent the plan. `chunks` are all chunks known so far, and
// this one adds [from_chunk, size). When they do not sum to the prompt yet, later Assigns of the
// same id and epoch, each with a larger sequence, bring the rest; members are then only appended.
// SP Assigns are sent to an instance in the order of their sequences.
struct AssignRequest {
  SpecPtr spec;
  Epoch epoch;
  PlanSequence sequence;
  std::vector<PlanMember> members = {};
  std::vector<PlanChunk> chunks = {};
  uint32_t from_chunk = 0;
  // The decode instance, when it was chosen with the plan. For the lead (a plain plan's instance,
  // or rank 0 of chunk 0): it opens the transfer there when its first chunk is about to start. For
  // an instance that joins a running plan: the transfer is open already. Without it the lead asks
  // (PlaceDecodeRequest), and other members wait for Start.
  std::optional<Placed> placed = {};
  // An engine failed in a step with this request: it runs in steps of its own, so that the next
  // failure is either its fault or harms no other.
  bool suspect = false;
};
struct AssignReply {
  absl::Status status;
};

// The lead of an SP plan has opened the transfer to its decode instance: sent to all other
// members. Idempotent; ignored by an instance that does not hold the plan: its reports say so.
struct StartRequest {
  RequestId id;
  Epoch epoch;
  Placed placed;
};

// ---- prefill -> orchestrator ----

// The lead of a plan asks for a decode instance: its first chunk is about to start, and the plan
// names none, or the one that it names (`refused_by`) did not open the transfer.
// RESOURCE_EXHAUSTED: no room yet, ask again; NOT_FOUND, FAILED_PRECONDITION: drop the request.
// Unanswered when the stream breaks: asked again on the next one.
struct PlaceDecodeRequest {
  InstanceId instance;
  Incarnation incarnation;
  RequestId id;
  Epoch epoch;
  InstanceId refused_by = {};  // 0: none was asked yet
  // Of refused_by. RESOURCE_EXHAUSTED: it has no room, or drains; else it could not be reached.
  absl::Status why = absl::OkStatus();
};
struct PlaceDecodeReply {
  absl::Status status;
  Placed placed;  // valid when OK
};

// ---- orchestrator -> decode ----

// The request is to be decoded here. It takes no blocks: the plan's lead does, with its
// OpenTransferRequest, when the first chunk is about to start. A repeated one of the same (id,
// epoch) may name more writers. Not answered; what is refused is in the next report as ended.
struct AnnounceRequest {
  SpecPtr spec;
  Epoch epoch;
  // The processes of the plan's members: they alone may write the KV.
  std::vector<Incarnation> writers = {};
};

// The request is placed elsewhere, under the same epoch: an announcement is forgotten; if blocks
// were taken meanwhile, the request ends here with UNAVAILABLE. Idempotent, not answered. Unlike
// after a Cancel, the same epoch may be announced again.
struct WithdrawRequest {
  RequestId id;
  Epoch epoch;
};

// ---- prefill -> decode ----

// Opens a transfer. The first of an announced request takes blocks for its prompt and output.
// Idempotent for one (id, epoch, writer). It may overtake the announcement, which comes on another
// connection: then the answer waits for that, within a bound.
//
// RESOURCE_EXHAUSTED: no blocks, or the instance drains: nothing was taken, another instance may
// have room. UNAVAILABLE: not announced in time. INVALID_ARGUMENT: it can never fit.
// FAILED_PRECONDITION: stale epoch, a shape that differs, by name, or a writer that no announcement
// names.
struct OpenTransferRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill;
  Incarnation incarnation;  // of the prefill worker
  KvShape shape;
};
struct OpenTransferReply {
  absl::Status status;
  std::vector<BlockId> blocks;  // those of the prompt, in token order
  KvLayout layout = {};         // in which `blocks` are to be filled
  std::string memory;           // the transport's description of the decode side's regions
  TimeUs lease_us = 0;          // writes stop this long after the call was SENT
  // > 0: nothing is written to the blocks, which are not told, but to a staging buffer with room
  // for so many of them: the staging buffer that AcquireStagingBuffer gives.
  int32_t staging_slots = 0;
};

struct RenewRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill = {};  // the writer; as in the Grant
};
struct RenewReply {
  absl::Status status;  // anything but OK, UNAVAILABLE, DEADLINE_EXCEEDED: stop writing
  TimeUs lease_us = 0;
};

// A writer numbers its acquisitions for a staging buffer: `ask` grows with each, the call of one
// may be repeated. Answered when it is the request's turn, or after a while RESOURCE_EXHAUSTED: ask
// again. The staging buffer is the writer's, under the lease of its Grant, until its
// ReleaseStagingBuffer, Commit or Abort.
struct AcquireStagingBufferRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill;  // the writer; as in the Grant
  uint64_t ask = 0;
};
struct AcquireStagingBufferReply {
  absl::Status status;
  std::string memory;  // the transport's description of the buffer
};

// These blocks lie in the writer's staging buffer. OK: they were copied out, their slots may be
// used again. Parts are numbered from 1, one at a time; a part that was taken before is answered OK
// and not looked at. UNAVAILABLE: it is being taken, ask again.
struct TakePartRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill;
  uint64_t part = 0;
  std::vector<StagedBlock> blocks;
  KvLayout layout = {};  // in which they were put; refused when it is not the decode side's
};
struct TakePartReply {
  absl::Status status;
};

// Under `ask` and earlier acquisitions the writer puts nothing more. The request keeps the staging
// buffer for its next acquisition, or another of its writers. Idempotent, always answered OK.
struct ReleaseStagingBufferRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill;
  uint64_t ask = 0;
};
struct ReleaseStagingBufferReply {
  absl::Status status;
};

// How long a prompt took at its prefill instance, by that instance's clock. Of an SP plan: as
// its lead saw them, and the longest handoff.
struct PrefillTimes {
  TimeUs queue_us = 0;    // from its Assign to the start of the first step with it
  TimeUs prefill_us = 0;  // from then to the end of the last step with it
  TimeUs handoff_us = 0;  // from then until the last of its KV was written at the decode side
  bool operator==(const PrefillTimes&) const = default;
};

// Every put of this writer has completed; it touches the blocks no more. Idempotent. The sequence
// is admitted when the bytes of all its writers sum to the prompt's and the token is there.
struct CommitRequest {
  RequestId id;
  Epoch epoch;
  std::vector<int64_t> bytes_per_layer;
  bool has_token = true;        // false when max_tokens is 0, or another writer has it
  int32_t token = 0;            // output token 0
  std::string payload;          // the sampled token with its logprobs; no core looks inside
  std::string prompt_logprobs;  // the chunks' payloads, concatenated
  InstanceId prefill = {};      // the writer; as in the Grant
  PrefillTimes times = {};      // at the writer
};
struct CommitReply {
  absl::Status status;
};

// The writer has stopped and will not commit: the blocks are free as soon as no other writer of
// the request is left. Idempotent, always answered OK.
struct AbortRequest {
  RequestId id;
  Epoch epoch;
  absl::Status reason;      // what the stream ends with
  InstanceId prefill = {};  // the writer; as in the Grant
};

// ---- orchestrator -> prefill, decode ----

// Ends (id, every epoch <= epoch). Idempotent, safe in every state, not answered: what it ends is
// in the next report. Says nothing about the writer: granted blocks are quarantined, not freed.
struct CancelRequest {
  RequestId id;
  Epoch epoch;
  std::string why;
};

// ---- router -> orchestrator ----

// How a request ended for its client.
struct RouterEnd {
  enum class How { kStopToken, kStopString, kMaxTokens, kClientGone, kFailed };
  RequestId id;
  How how = How::kFailed;
  std::string why;  // of kFailed
  int64_t output_tokens = 0;
  TimeUs first_token_us = -1;  // from the submission; -1: there was none
};

struct RouterIdentity {
  uint64_t router = 0;   // its incarnation, the first half of its requests' ids; not 0
  std::string endpoint;  // host:port of its API
  std::string host;      // where it runs
  std::string details;   // what status shows of it (serialised); no core looks inside
};

struct RouterLoad {
  int64_t queued = 0;   // wait for admission
  int64_t running = 0;  // are admitted and have not ended
  bool draining = false;
  TimeUs uptime_us = 0;
};

// A request that the router has submitted and that has not ended for its client.
struct RouterRequest {
  RequestId id;
  Epoch epoch;           // the highest that it has heard; 0: none
  bool placed = false;   // it has attached, or tries to, to the request's tokens
  InstanceId decode;     // there, if so
  bool streams = false;  // and its token stream lives
};

// The first message of a stream: who the router is, and its whole state. What the orchestrator
// knows of this router and is not listed has ended for its client.
struct RouterHello {
  RouterIdentity identity;
  Generation seen;  // the highest that it has listened to
  RouterLoad load;
  std::vector<RouterRequest> requests;
  std::vector<RouterEnd> ended;  // of which it does not know that they were heard
};
// Not OK: the stream is over.
struct RouterWelcome {
  absl::Status status;
  Generation generation;
  TimeUs lease_us = 0;             // report at least every third of it
  std::vector<RequestId> unknown;  // of those listed: to be submitted anew, unless they stream
};

// ---- operator -> orchestrator ----

// NOT_FOUND: unknown; FAILED_PRECONDITION: it is the last one that serves, and `force` is not set.
struct DrainRequest {
  InstanceId instance;  // 0: `router`
  uint64_t router = 0;
  bool undo = false;
  bool force = false;
};
struct DrainReply {
  absl::Status status;
};

// ---- worker -> orchestrator ----

enum class Role { kPrefill, kDecode };

struct WorkerIdentity {
  Role role = Role::kPrefill;
  std::string model;
  std::string endpoint;  // host:port of the worker's gRPC server
  Incarnation incarnation;
  KvShape shape;
  int64_t total_blocks = 0;
  int64_t max_positions = 0;      // longest sequence, prompt and output; 0: no limit
  std::string details;            // what status shows of it (serialised); no core looks inside
  std::string host = {};          // where it runs: instances of one host can be of one node
  std::string comm_address = {};  // prefill: how communicators reach it; no core looks inside
  // Prefill: what it computes in one step, the same at all that share plans: a chunk of several
  // instances is cut into pieces by it. PrefillCore fills it in.
  int64_t max_batch_tokens = 0;
  // Requests that it holds at a time; more are refused. The cores fill it in. 0: not told, so
  // nothing is refused for its sake.
  int64_t max_requests = 0;
};

struct HeldRequest {
  RequestId id;
  Epoch epoch;
  // Decode: its blocks were taken; otherwise it is announced only. Prefill: not used.
  bool opened = false;
  // Of an SP plan: chunks this instance has finished, and for how long the next has run.
  uint32_t chunks_done = 0;
  TimeUs chunk_running_us = -1;  // -1: none runs
};

struct EndedRequest {
  RequestId id;
  Epoch epoch;
  // kCancelled, of decode: the router closed the token stream, or the orchestrator said Cancel;
  // what a writer of KV aborts with, CANCELLED or not, is kError.
  FinishReason reason = FinishReason::kError;
  // Prefill: OK = committed (of an SP plan: this member's part); UNAVAILABLE before its
  // transfer was opened = handed back, to be planned anew. An error of an SP plan's member:
  // planned anew, within bounds.
  absl::Status status;
  bool engine_failed = false;  // in a step that this request was in
};

struct WorkerLoad {
  int64_t queued_requests = 0;  // not yet computing (decode: blocks taken, KV on its way)
  int64_t queued_tokens = 0;    // prompt tokens still to compute, of all requests
  int64_t running_requests = 0;
  int64_t free_blocks = 0;
  int64_t held_blocks = 0;  // quarantined ones included
  int64_t cached_blocks = 0;
  int64_t total_blocks = 0;
  double tokens_per_second = 0;  // measured over recent steps; 0 = not measured yet
  bool draining = false;
  bool invariants_ok =
      true;  // when they were last checked (/debug/invariants); its shell fills it in
  // Of the engine step in flight, probes included: how long it has run, and about how long such a
  // step takes here. The age is 0 when there is none, or while it waits for other instances; the
  // estimate is 0 when nothing was measured yet.
  TimeUs step_age_us = 0;
  TimeUs step_estimate_us = 0;
};

// Decode: the blocks of an announced request were taken. Not answered; `held` tells it, too.
struct TransferOpened {
  InstanceId instance;  // on the wire: the stream's
  RequestId id;
  Epoch epoch;
};

// The first message of a stream: who the worker is, and its whole state.
//
// Refused with INVALID_ARGUMENT: a field that is out of its range; FAILED_PRECONDITION: another
// shape than the model's pool, or another max_batch_tokens than its prefill instances, by name. The
// stream is over then.
struct RegisterRequest {
  WorkerIdentity identity;
  std::vector<HeldRequest> held;
  std::vector<EndedRequest> ended;  // as in a report
  WorkerLoad load = {};
  Generation seen = {};  // the highest that it has listened to
};
struct RegisterReply {
  absl::Status status;
  InstanceId instance;
  TimeUs lease_us = 0;              // report at least every third of it
  std::vector<HeldRequest> cancel;  // held by the worker, unknown to the orchestrator
  Generation generation = {};
};

// What has changed since the message before, on a stream that loses nothing: the report before, or
// the registration. One at a time: the next is sent when this one was answered, which also shows
// that the orchestrator lives. NOT_FOUND: the orchestrator has given this instance up, or never
// knew it.
struct ReportRequest {
  InstanceId instance;
  Incarnation incarnation;
  uint64_t serial = 0;  // counts this worker's reports
  WorkerLoad load;
  // Held since, or held and moved on: in each as it stands now. `full`: all that is held.
  std::vector<HeldRequest> held;
  bool full = false;
  // Held no longer. Repeated until a message that carried them is answered OK.
  std::vector<EndedRequest> ended;
  std::vector<HeldRequest> gone = {};  // held no longer, without an end: they were withdrawn
  uint64_t held_digest = 0;            // of all that is held after this report (held_digest.h)
};
struct ReportReply {
  absl::Status status;
  bool want_full = false;  // the digest is not that of what was told: the next report is a full one
};

// ---- orchestrator -> worker ----

// An operator's order: take nothing new and hand back what has not begun, or take requests again.
// Idempotent, not answered; sent again at the begin of each stream. Without one the worker stays as
// it is.
struct DrainOrder {
  bool drain = true;
};

struct UnregisterRequest {
  InstanceId instance;
  Incarnation incarnation;
};
struct UnregisterReply {
  absl::Status status;
};

}  // namespace skein::scheduler
