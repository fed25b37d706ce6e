// Messages about a worker itself (messages.h): who it is, what it holds, its load, and orders to
// it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/formation_messages.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/peer_build.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/kv/handoff_shape.h"

namespace skein::scheduler {

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
  PeerBuild build = {};    // of the worker
  uint64_t kv_digest = 0;  // as told (scheduler/kv/kv_digest.h); 0: of the shape
  // The kind of its device, such as "cpu" or "cuda"; "": unknown. Read from `details` by the
  // receiver's codec.
  std::string device_kind = {};
  bool shares_weights = false;  // decode: its engine can share its weights (formation_messages.h)
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
  bool ring_broken = false;           // prefill: a step with other instances failed
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
  // Of recent steps of requests that the instance ran alone: how long one took on average, and how
  // many there have been since its process started. 0 and 0: none yet.
  TimeUs mean_step_us = 0;
  int64_t steps = 0;
};

// Decode: the blocks of an announced request were allocated. Not answered; `held` shows it, too.
struct TransferOpened {
  InstanceId instance;  // on the wire: the stream's instance
  RequestId id;
  Epoch epoch;
};

// The first message of a stream: the worker's identity and full state.
//
// Refused with INVALID_ARGUMENT: a field out of range; FAILED_PRECONDITION: no protocol revision in
// common, a shape or KV digest that differs from the model's, or another max_batch_tokens than its
// prefill instances (the field is named). The stream then ends.
struct RegisterRequest {
  WorkerIdentity identity;
  std::vector<HeldRequest> held;
  std::vector<EndedRequest> ended;  // as in a report
  WorkerLoad load = {};
  Generation seen = {};                         // the highest generation seen
  uint64_t stream = 0;                          // 1, 2, ...: which stream of this process it begins
  std::optional<FormationTold> formation = {};  // decode: the latest; empty: none yet
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
  PeerBuild build = {};  // of the orchestrator
  // Verifies the permits of this orchestrator (Placed::permit); for the shell. Empty: it signs
  // none.
  std::string permit_key = {};
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
// Room for requests that go on elsewhere: their prompts and outputs are computed again there.
struct PoolRoom {
  int64_t requests = 0;         // at several decode instances together
  int64_t blocks = 0;           // KV blocks that are not held, likewise
  int64_t sequence_blocks = 0;  // with which one request can be computed again, at most
  bool operator==(const PoolRoom&) const = default;
};
struct ReportReply {
  absl::Status status;
  bool want_full =
      false;  // the digest differs from the orchestrator's records: send a full report next
  // To a decode instance that drains: at the others that could go on with its requests.
  PoolRoom elsewhere = {};
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
