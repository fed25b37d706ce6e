// Messages about a request's plan (messages.h): from the orchestrator to the router, which hears
// how its request stands, and to the instances that carry the plan out; and the lead's question for
// a decode instance.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"

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
  Incarnation decode_incarnation = {};
};

// The decode instance has allocated the blocks: attach to it on StreamTokens.
struct Placed {
  Epoch epoch;
  InstanceId decode;
  std::string endpoint;
  Incarnation incarnation = {};  // of its process; not told to prefill instances
  // To a prefill instance only: its own process, which may write the KV there; not told.
  Incarnation writer = {};
  // The orchestrator's leave for this writer, which the decode instance asks for. Opaque to the
  // cores; the shells make it, show it and verify it. Empty: from an older orchestrator.
  std::string permit = {};
};

// The request has failed. Its last update.
struct Failed {
  absl::Status status;
  FailedEngines failed_engines = {};  // as in Planned
  bool condemned = false;  // engines failed or ended under it: no orchestrator plans it any more
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
  // Of its members, each so many neighbours in the order of ranks compute the dense part together,
  // each with 1 / tp of its weights (the chunk's group is (members / tp, tp)). A power of two that
  // divides the number of members; 1: each member alone.
  uint32_t tp = 1;
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
// names none, or the named one (`refused_by`) did not open the transfer. The answer comes when
// there is room. RESOURCE_EXHAUSTED: there is none, and an older SP plan may wait for the lead's
// blocks: give them back if so, and ask again. NOT_FOUND, FAILED_PRECONDITION: drop the request. If
// the stream breaks before the answer, the lead asks again on the next one.
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
  // Not 0: of the bound group of this formation's epoch, which this instance leads. Without writers
  // nobody writes the KV; the group computes the request from its first token on. If it is bound no
  // more, the request ends with UNAVAILABLE, to be planned again. With writers, their KV goes
  // straight into the blocks of all ranks, and the group runs the request from there. If it is
  // bound no more, OpenTransfer is refused with RESOURCE_EXHAUSTED; if it ends while KV is on its
  // way, the request ends with UNAVAILABLE.
  uint64_t formation = 0;
  // As AssignOf's. A bound group runs it with others all the same.
  bool suspect = false;
  // Those of `writers` that are of older builds (below protocol revision 2) and show no permit.
  std::vector<Incarnation> excused = {};
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

// ---- orchestrator -> prefill, decode ----

// Ends (id, every epoch <= epoch). Idempotent, valid in every state, not answered; the next report
// lists what it ended. A writer may still be writing, so granted blocks are quarantined, not freed.
struct CancelRequest {
  RequestId id;
  Epoch epoch;
  std::string why;
  // To its decode instance, where its KV goes: only if no router has attached to its tokens. It
  // ends as at the end of the attach lease. Understood from protocol revision 1 on.
  bool unless_claimed = false;
};

}  // namespace skein::scheduler
