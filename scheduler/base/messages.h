// The messages between the four roles, one to one with proto/ (services/codec converts).
//
// A worker and the orchestrator exchange them over one stream, which the worker opens; a router and
// the orchestrator likewise. While the stream is open, messages arrive once and in order. When it
// breaks, the last ones sent may be lost. The next stream begins with a RegisterRequest or
// RouterHello, which carries the full state of the worker or router. The first message back names
// the orchestrator's generation, to which all messages of the stream belong.
//
// All others are calls: one Request and exactly one Reply. If there is no reply, the caller's shell
// makes one (UNAVAILABLE, DEADLINE_EXCEEDED); the callee may or may not have executed the call.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/cell_load.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/kv/handoff_shape.h"
#include "scheduler/vocabulary/staged_block.h"

namespace skein::scheduler {

// The engines that failed in a step with a request, by their processes. Few: after two it is not
// planned again.
using FailedEngines = std::vector<Incarnation>;

// ---- orchestrator -> router ----

struct Planned {
  Epoch epoch;
  InstanceId prefill;
  TimeUs decided_us = 0;              // from submission to decision
  FailedEngines failed_engines = {};  // so far
  // Where the request was announced with its plan. It may be placed elsewhere; Placed says where.
  InstanceId decode = {};
  std::string decode_endpoint = {};  // empty: nowhere yet
};

// The decode instance has allocated the blocks: attach to it on StreamTokens.
struct Placed {
  Epoch epoch;
  InstanceId decode;
  std::string endpoint;
};

// The request has failed. Its last update.
struct Failed {
  absl::Status status;
};

// The request was accepted and waits for its plan. Not sent when the plan is made at once.
struct Accepted {
  FailedEngines failed_engines = {};  // as in Planned
};

// The request's decode instance has reported its end; the orchestrator has forgotten the request.
// Its last update.
struct PlanEnded {};

using PlanUpdate = std::variant<Planned, Placed, Failed, Accepted, PlanEnded>;

// ---- orchestrator -> prefill ----

// An instance that computes part of a prompt.
struct PlanMember {
  InstanceId instance;
  Incarnation incarnation;
  std::string endpoint;
  std::string comm_address;  // address of its communicators; opaque to the cores
};

// A span of the prompt and the instances that compute it together. They include all members of the
// previous chunk.
struct PlanChunk {
  int64_t tokens = 0;             // whole blocks, except in the prompt's last chunk
  std::vector<uint32_t> members;  // indexes into AssignRequest::members; the order is the rank
  // Estimated time from when the first of its members is free for it until its end; 0: unknown.
  TimeUs estimated_us = 0;
};

// Refused with UNAVAILABLE (draining), RESOURCE_EXHAUSTED (queue full), INVALID_ARGUMENT (can never
// fit, or malformed plan) or FAILED_PRECONDITION (stale epoch).
//
// Without members the plan is plain: the instance computes the whole prompt alone. Otherwise it is
// an SP plan, and every member of any chunk gets it. `chunks` are all chunks known so far; this
// message adds [from_chunk, size). If they do not sum to the prompt yet, later Assigns of the same
// id and epoch, each with a larger sequence, add the rest; members are only appended. An instance
// gets SP Assigns in the order of their sequences.
//
// The orchestrator sends it with the request's head (AssignOrder), whose bytes become the worker's
// spec (AssignRequest).
template <class Spec>
struct AssignOf {
  std::shared_ptr<const Spec> spec;
  Epoch epoch;
  PlanSequence sequence;
  std::vector<PlanMember> members = {};
  std::vector<PlanChunk> chunks = {};
  uint32_t from_chunk = 0;
  // Set if the decode instance was chosen with the plan. The lead (a plain plan's instance, or rank
  // 0 of chunk 0) opens the transfer there when its first chunk is about to start. For an instance
  // that joins a running plan, the transfer is already open. If not set, the lead asks
  // (PlaceDecodeRequest), and other members wait for Start.
  std::optional<Placed> placed = {};
  // An engine failed in a step with this request. It runs in steps of its own, so that another
  // failure harms no other request.
  bool suspect = false;
};
using AssignOrder = AssignOf<RequestHead>;
using AssignRequest = AssignOf<RequestSpec>;
struct AssignReply {
  absl::Status status;
};

// The lead of an SP plan has opened the transfer to its decode instance, and every member has
// accepted all chunks that were sent. Goes to each member: to the lead, which started by itself,
// as word that no other member lacks the plan. Sent anew when later chunks were accepted.
// Idempotent. An instance that does not hold the plan ignores it; its reports show this.
struct StartRequest {
  RequestId id;
  Epoch epoch;
  Placed placed;
};

// ---- prefill -> orchestrator ----

// The lead of a plan asks for a decode instance: its first chunk is about to start, and the plan
// names none, or the named one (`refused_by`) did not open the transfer. RESOURCE_EXHAUSTED: no
// room yet, ask again. NOT_FOUND, FAILED_PRECONDITION: drop the request. If the stream breaks
// before the answer, the lead asks again on the next one.
struct PlaceDecodeRequest {
  InstanceId instance;
  Incarnation incarnation;
  RequestId id;
  Epoch epoch;
  InstanceId refused_by = {};  // 0: none was asked yet
  // Its answer. RESOURCE_EXHAUSTED: it has no room, or drains. Otherwise it could not be reached.
  absl::Status why = absl::OkStatus();
};
struct PlaceDecodeReply {
  absl::Status status;
  Placed placed;  // valid when OK
};

// ---- orchestrator -> decode ----

// The request will be decoded here. Takes no blocks; the lead's OpenTransferRequest does, when the
// first chunk is about to start. A repeated message for the same (id, epoch) may name more writers.
// Not answered; the next report lists refused ones as ended. As with Assign, AnnounceOrder is what
// the orchestrator sends, AnnounceRequest what the worker gets.
template <class Spec>
struct AnnounceOf {
  std::shared_ptr<const Spec> spec;
  Epoch epoch;
  // The processes of the plan's members. Only they may write the KV.
  std::vector<Incarnation> writers = {};
  // Nobody writes the KV: the request has the very prompt of this one, which was announced here
  // before it, and shares its blocks.
  std::optional<RequestId> prompt_of = std::nullopt;
};
using AnnounceOrder = AnnounceOf<RequestHead>;
using AnnounceRequest = AnnounceOf<RequestSpec>;

// The request was placed elsewhere under the same epoch. The announcement is forgotten; if blocks
// were already taken, the request ends here with UNAVAILABLE. Idempotent, not answered. Unlike
// after a Cancel, the same epoch may be announced again.
struct WithdrawRequest {
  RequestId id;
  Epoch epoch;
};

// ---- prefill -> decode ----

// Opens a transfer. The first one for an announced request allocates blocks for its prompt and
// output. Idempotent for one (id, epoch, writer). It may overtake the announcement, which comes on
// another connection; the answer then waits for the announcement, within a bound.
//
// RESOURCE_EXHAUSTED: no blocks, or the instance drains; nothing was taken, and another instance
// may have room. UNAVAILABLE: not announced in time. INVALID_ARGUMENT: it can never fit.
// FAILED_PRECONDITION: stale epoch, a different shape (the field is named), or a writer that was
// not announced.
struct OpenTransferRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill;
  Incarnation incarnation;  // of the prefill worker
  HandoffShape shape;
};
struct OpenTransferReply {
  absl::Status status;
  std::vector<BlockId> blocks;  // blocks of the prompt, in token order
  KvLayout layout = {};         // layout to use when writing `blocks`
  std::string memory;           // the transport's description of the decode side's regions
  TimeUs lease_us = 0;          // the writer must stop this long after it SENT the call
  // > 0: `blocks` is empty. The writer writes to a staging buffer with this many slots, which it
  // gets with AcquireStagingBuffer.
  int32_t staging_slots = 0;
};

struct RenewRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill = {};  // the writer, as in OpenTransferRequest
};
struct RenewReply {
  absl::Status status;  // on any other error than UNAVAILABLE and DEADLINE_EXCEEDED, stop writing
  TimeUs lease_us = 0;
};

// A writer numbers its acquisitions of staging buffers: `ask` grows with each; repeating a call is
// safe. Answered when the request gets a buffer, or after a while with RESOURCE_EXHAUSTED: call
// again. The writer has the buffer, under its transfer's lease, until its ReleaseStagingBuffer,
// Commit or Abort.
struct AcquireStagingBufferRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill;  // the writer, as in OpenTransferRequest
  uint64_t ask = 0;
};
struct AcquireStagingBufferReply {
  absl::Status status;
  std::string memory;  // the transport's description of the buffer
};

// These blocks are complete in the writer's staging buffer. OK: they were copied out and their
// slots may be reused. Parts are numbered from 1, one at a time; a part taken before is answered OK
// without being read. UNAVAILABLE: it is still being copied, call again.
struct TakePartRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill;
  uint64_t part = 0;
  std::vector<StagedBlock> blocks;
  KvLayout layout = {};  // layout of the blocks; refused if it differs from the decode side's
};
struct TakePartReply {
  absl::Status status;
};

// The writer sends nothing more under `ask` and earlier acquisitions. The request keeps the buffer
// for its next acquisition or another of its writers. Idempotent, always answered OK.
struct ReleaseStagingBufferRequest {
  RequestId id;
  Epoch epoch;
  InstanceId prefill;
  uint64_t ask = 0;
};
struct ReleaseStagingBufferReply {
  absl::Status status;
};

// How long a prompt took at its prefill instance, by that instance's clock. For an SP plan: the
// lead's durations, with the longest handoff.
struct PrefillTimes {
  TimeUs queue_us = 0;    // from Assign to the start of its first step
  TimeUs prefill_us = 0;  // from there to the end of its last step
  TimeUs handoff_us = 0;  // from there until the last KV was written at the decode side
  bool operator==(const PrefillTimes&) const = default;
};

// All puts of this writer have completed; it no longer accesses the blocks. Idempotent. The
// sequence is admitted when all its writers' bytes sum to the prompt's and the first token is
// known.
struct CommitRequest {
  RequestId id;
  Epoch epoch;
  std::vector<int64_t> bytes_per_layer;
  bool has_token = true;        // false when max_tokens is 0, or another writer has it
  int32_t token = 0;            // output token 0
  std::string payload;          // the sampled token with its logprobs; opaque to the cores
  std::string prompt_logprobs;  // the chunks' payloads, concatenated
  InstanceId prefill = {};      // the writer, as in OpenTransferRequest
  PrefillTimes times = {};      // measured by the writer
};
struct CommitReply {
  absl::Status status;
};

// The writer has stopped and will not commit. The blocks are freed when the request has no other
// writer. A process that the plan does not name ends nothing. Idempotent, always answered OK.
struct AbortRequest {
  RequestId id;
  Epoch epoch;
  absl::Status reason;           // final status of the token stream
  InstanceId prefill = {};       // the writer, as in OpenTransferRequest
  Incarnation incarnation = {};  // of its process, as there
};

// ---- orchestrator -> prefill, decode ----

// Ends (id, every epoch <= epoch). Idempotent, valid in every state, not answered; the next report
// lists what it ended. A writer may still be writing, so granted blocks are quarantined, not freed.
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
  std::string why;  // for kFailed
  int64_t output_tokens = 0;
  TimeUs first_token_us = -1;  // from submission; -1: no token was sent
};

struct RouterIdentity {
  uint64_t router = 0;   // its incarnation, the first half of its requests' ids; not 0
  std::string endpoint;  // host:port of its API
  std::string host;      // where it runs
  std::string details;   // fields for status (serialised); opaque to the cores
};

struct RouterLoad {
  int64_t queued = 0;   // waiting for admission
  int64_t running = 0;  // admitted and not ended
  bool draining = false;
  TimeUs uptime_us = 0;
  // Decode instances with requests of this router, by whether it hears them: something came on
  // their token streams of late (scheduler/router/heard_instances.h). In a hello, all; in a report,
  // those that changed since the message before.
  std::vector<InstanceId> heard = {};
  std::vector<InstanceId> not_heard = {};
};

// A submitted request that has not ended for its client.
struct RouterRequest {
  RequestId id;
  Epoch epoch;           // the highest epoch received; 0: none
  bool placed = false;   // the router has attached, or is attaching, to the request's tokens
  InstanceId decode;     // the instance it attaches to, if `placed`
  bool streams = false;  // its token stream is open
};

// The first message of a stream: the router's identity and full state. A request of this router
// that the orchestrator knows and that is not listed has ended for its client.
struct RouterHello {
  RouterIdentity identity;
  Generation seen;  // the highest generation seen
  RouterLoad load;
  std::vector<RouterRequest> requests;
  std::vector<RouterEnd> ended;  // those not yet acknowledged
  uint64_t stream = 0;           // 1, 2, ...: which stream of this process it begins
};
// Not OK: the stream ends.
struct RouterWelcome {
  absl::Status status;
  Generation generation;
  TimeUs lease_us = 0;             // report at least every third of this
  std::vector<RequestId> unknown;  // listed requests that the orchestrator does not know: submit
                                   // them again, unless they stream
  CellReport cell;
};

// ---- operator -> orchestrator ----

// NOT_FOUND: unknown. FAILED_PRECONDITION: it is the last one that serves, and `force` is not set.
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
  HandoffShape shape;
  int64_t total_blocks = 0;
  int64_t max_positions = 0;      // longest sequence, prompt and output; 0: no limit
  std::string details;            // fields for status (serialised); opaque to the cores
  std::string node = {};          // locality label: instances of one node have fast links
  std::string comm_address = {};  // address of its communicators; opaque to the cores
  // Prefill: token limit of one step, equal at all instances that share plans, because a chunk of
  // several instances is cut into pieces by it. Set by PrefillCore.
  int64_t max_batch_tokens = 0;
  // Limit of requests held at a time; more are refused. Set by the cores. 0: unknown, no limit.
  int64_t max_requests = 0;
};

struct HeldRequest {
  RequestId id;
  Epoch epoch;
  // Decode: its blocks are allocated; otherwise it is only announced. Prefill, at the plan's lead:
  // it has opened the transfer.
  bool opened = false;
  // SP plan: chunks that this instance has finished, and how long the next one has run.
  uint32_t chunks_done = 0;
  TimeUs chunk_running_us = -1;  // -1: none is running
  uint32_t chunks_known = 0;     // of the plan, at this instance; told at the start of a stream
  uint32_t preemptions = 0;      // decode: how often it gave its blocks up, so far
};

// How one instance's KV went to the decode instance.
struct HandoffPath {
  std::string path;             // "direct", or "host-staged": through host memory; "": none
  std::string transport;        // such as "cuda-ipc" or "tcp"
  bool staging_buffer = false;  // through a staging buffer of the decode instance
  uint32_t retries = 0;         // calls of OpenTransfer and Commit that were sent again
  // No answer to Commit came. It counts as committed, because the decode side may have taken it.
  bool commit_unanswered = false;
  bool operator==(const HandoffPath&) const = default;
};

// The path of the keys and values that an instance sent to others in steps of several instances.
struct RingPath {
  bool through_host = false;  // through host memory, although the instances' memory is on devices
  std::string why;            // why no direct path was used
  bool operator==(const RingPath&) const = default;
};

struct EndedRequest {
  RequestId id;
  Epoch epoch;
  // Decode: kCancelled only if the router closed the token stream or the orchestrator sent Cancel.
  // A writer's abort is kError, whatever its status.
  FinishReason reason = FinishReason::kError;
  // Prefill: OK = committed (for an SP plan: this member's part). UNAVAILABLE before the transfer
  // was opened = handed back, to be planned again. Another error of an SP plan's member: planned
  // again, within bounds.
  absl::Status status;
  bool engine_failed = false;         // in a step with this request
  HandoffPath handoff = {};           // prefill: path of the committed KV
  std::optional<RingPath> ring = {};  // prefill: of its steps with other instances; none: no step
  // Decode: no router attached in time. All sampled tokens were lost, even of a complete answer.
  bool unclaimed = false;
};

struct WorkerLoad {
  // Not yet computing; decode: KV on its way, or preempted.
  int64_t queued_requests = 0;
  int64_t queued_tokens = 0;  // prompt tokens not yet computed, of all requests
  int64_t running_requests = 0;
  int64_t free_blocks = 0;
  int64_t held_blocks = 0;  // quarantined ones included
  int64_t cached_blocks = 0;
  int64_t total_blocks = 0;
  // Decode: of the free ones, those kept for the growth of the requests that are here.
  int64_t claimed_blocks = 0;
  double tokens_per_second = 0;  // measured over recent steps; 0 = not measured yet
  bool draining = false;
  bool invariants_ok = true;  // latest result of /debug/invariants; set by the shell
  // Age of the engine step in flight, probes included, and estimated duration of such a step. Age
  // 0: no step, or it waits for other instances. Estimate 0: not measured yet.
  TimeUs step_age_us = 0;
  TimeUs step_estimate_us = 0;
  // Decode, set by the shell: the latest generation of its group (GroupOrder) whose communicators
  // are ready, and the latest for which they could not be made or have broken. 0: none.
  uint64_t groups_made = 0;
  uint64_t groups_failed = 0;
};

// Decode: the blocks of an announced request were allocated. Not answered; `held` shows it, too.
struct TransferOpened {
  InstanceId instance;  // on the wire: the stream's instance
  RequestId id;
  Epoch epoch;
};

// The first message of a stream: the worker's identity and full state.
//
// Refused with INVALID_ARGUMENT: a field out of range; FAILED_PRECONDITION: a shape that differs
// from the model's, or another max_batch_tokens than its prefill instances (the field is named).
// The stream then ends.
struct RegisterRequest {
  WorkerIdentity identity;
  std::vector<HeldRequest> held;
  std::vector<EndedRequest> ended;  // as in a report
  WorkerLoad load = {};
  Generation seen = {};  // the highest generation seen
  uint64_t stream = 0;   // 1, 2, ...: which stream of this process it begins
};
struct RegisterReply {
  absl::Status status;
  InstanceId instance;
  TimeUs lease_us = 0;              // report at least every third of this
  std::vector<HeldRequest> cancel;  // held by the worker, unknown to the orchestrator
  Generation generation = {};
  // Prefill: addresses of the communicators of the pool's other instances. The shell makes its
  // links to them.
  std::vector<std::string> peers = {};
};

// Changes since the previous report or the registration; the stream loses none. One at a time: the
// next one is sent when this one was answered, which also shows that the orchestrator is alive.
// NOT_FOUND: the orchestrator has given this instance up or never knew it.
struct ReportRequest {
  InstanceId instance;
  Incarnation incarnation;
  uint64_t serial = 0;  // counts this worker's reports
  WorkerLoad load;
  // New or progressed since, each with its current state. `full`: everything held.
  std::vector<HeldRequest> held;
  bool full = false;
  // No longer held. Repeated until a message with them is answered OK.
  std::vector<EndedRequest> ended;
  std::vector<HeldRequest> gone = {};  // no longer held, without an end: withdrawn
  uint64_t held_digest = 0;            // of everything held after this report (held_digest.h)
};
struct ReportReply {
  absl::Status status;
  bool want_full =
      false;  // the digest differs from the orchestrator's records: send a full report next
};

// ---- orchestrator -> worker ----

// An operator's order. Drain: take nothing new and return what has not begun. Otherwise: take
// requests again. Idempotent, not answered, repeated at the start of each stream. Without an order
// the worker keeps its state.
struct DrainOrder {
  bool drain = true;
};

// Prefill: another instance of the pool has registered, or came back as another process. Not
// answered. The shell makes its link to it.
struct PeerOrder {
  std::string comm_address;
};

// Decode: the instances of its model and node, as of a generation, which only grows. The shell
// makes the communicators of the aligned subsets that the instance belongs to, in the background; a
// generation that it has already is not made again. Not answered: WorkerLoad tells how far it is.
// Repeated at the start of each stream.
struct GroupMember {
  InstanceId instance;
  std::string comm_address;
};
struct GroupOrder {
  uint64_t generation = 0;
  size_t index = 0;                  // of the addressee in members
  std::vector<GroupMember> members;  // in ascending order
};

struct UnregisterRequest {
  InstanceId instance;
  Incarnation incarnation;
};
struct UnregisterReply {
  absl::Status status;
};

}  // namespace skein::scheduler
