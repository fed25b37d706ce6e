// A request as the orchestrator sees it. Plain data: RequestTable owns it, and the components of
// OrchestratorCore read and change it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "scheduler/base/ids.h"
#include "scheduler/base/messages.h"
#include "scheduler/base/prefill_shape.h"
#include "scheduler/base/request.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/explain/explanation.h"
#include "scheduler/orchestrator/requests/engine_failures.h"

namespace skein::scheduler::orchestrator {

enum class State {
  kQueued,     // rolling: the planner has not started it
  kAssigning,  // a member has not answered its Assign
  kAssigned,
  kWaiting,     // for decode room: its lead asked
  kReserving,   // its lead was answered, and opens the transfer
  kPlaced,      // the transfer is open
  kReplanning,  // its last plan is being cancelled
  kParked,      // no prefill instance takes it now, or its tenant's turn has not come
  kSharing,     // it waits for the KV of its answer's first choice (shared_prompts.h)
  kGrouping,    // it waits for a bound group, or was announced to one (groups/long_requests.h)
};
inline constexpr size_t kStates = static_cast<size_t>(State::kGrouping) + 1;
using StateCounts = std::array<int64_t, kStates>;

// An instance's part in the current plan of a request.
struct Member {
  enum class Phase {
    kAssigned,   // the last Assign for it is not answered
    kAccepted,   // it is
    kLacksPlan,  // it refused the plan, or told its state without it
    kGone,       // it has committed its part, or was lost
  };
  InstanceId instance;
  Phase phase = Phase::kAssigned;
  PlanSequence assigned;  // of the last Assign for it; 0: none yet
  uint32_t chunks_done = 0;
  TimeUs entered_us = -1;  // when it began to wait for, or to run, its next chunk

  bool here() const { return phase != Phase::kGone; }
  bool accepted() const { return phase == Phase::kAccepted; }
};

// Computed by the first `members` of the request's members.
struct Chunk {
  int64_t history = 0;
  int64_t tokens = 0;
  size_t members = 0;
  PlanSequence sequence;
  TimeUs estimated_us = 0;  // as PlanChunk says, as is tp
  int tp = 1;
  TimeUs started_us = -1;
  TimeUs ended_us = -1;
};

struct PlannedChunk {
  int64_t tokens = 0;
  std::vector<InstanceId> instances;
};

struct Request {
  HeadPtr spec;
  PrefillShape shape;  // asked for, whatever the policy
  State state = State::kAssigning;
  Epoch epoch;
  uint64_t number = 0;              // by submission
  StateCounts* of_model = nullptr;  // the table's
  TimeUs submitted_us = 0;
  TimeUs deadline_us = kNever;

  bool shares_prompt = false;   // it has no plan of its own (shared_prompts.h)
  bool in_group = false;        // the same: a bound group computes it (groups/long_requests.h)
  std::vector<Member> members;  // the lead first; none without a plan
  std::vector<Chunk> chunks;    // all but those that rolling has not started
  bool sequence_parallel = false;
  std::set<InstanceId> tried_prefill;  // not to be tried before all others were
  bool unsure = false;                 // its last members were lost when they may have committed

  int64_t rolling_key = 0;       // the rolling planner knows it by this; 0: it does not
  bool rolling_running = false;  // its last chunk has not ended

  EngineFailures failures;

  int replans = 0;

  // Its tenant has been charged for its turn: among those that waited to be planned, and for decode
  // room. A request that has to wait there again is not charged again.
  bool plan_charged = false;
  bool decode_charged = false;

  uint64_t waiting_number = 0;  // in the waiting list, by first asking; 0 = never asked
  TimeUs waiting_since_us = 0;
  size_t waited_with_tenants = 0;  // that it shared the waiting list with, itself included
  InstanceId decode;               // announced or opened there
  // The epoch of the bound group that it is announced to, at its lead; 0: to that instance alone.
  uint64_t formation = 0;
  int32_t formation_size = 1;         // instances of that group
  std::set<uint64_t> old_formations;  // of groups that did not take it: it is not tried there again
  std::set<InstanceId> tried_decode;
  std::set<InstanceId> old_decodes;  // may have blocks of an older epoch in quarantine
  // Attempts before this one were lost there (lost_attempts.h): only if no other can take it.
  std::set<InstanceId> lost_decodes;
  // The prefill instance that alone computed the prompt of the attempt before this one, and may
  // have kept its KV. 0: none.
  InstanceId kept_at;

  std::optional<CallId> asking;  // the stream on which PlaceDecode is to be answered
  TimeUs asking_until_us = kNever;

  Explanation explanation;
  std::optional<RouterEnd> router_end;  // it came before the router's close

  // What its submitter asked for, of a chunk of so many members.
  std::optional<int> AskedTp(size_t chunk_members) const {
    const bool asked = shape.instances > 1 && chunk_members == shape.instances;
    return asked ? std::optional<int>(shape.tp) : std::nullopt;
  }

  int64_t PlannedTokens() const {
    return chunks.empty() ? 0 : chunks.back().history + chunks.back().tokens;
  }
  // All chunks of the prompt are known.
  bool IsPlanWhole() const {
    return shares_prompt || in_group || PlannedTokens() == PromptTokens(*spec);
  }
  Member* MemberAt(InstanceId instance);  // that is here; null: none
  bool HasMembersHere() const;
  // Each member has the plan as it is now, or has committed its part.
  bool AllAccepted() const;
  // The chunk that the member computes next; chunks.size(): none. A member that joined later takes
  // no part in the first chunks.
  size_t NextChunkOf(const Member& member) const;
  // As far as reports tell, instances may have begun to compute it: its transfer is open; or its
  // lead is its only instance, so that it computes meanwhile, and has asked for a place, or has
  // computed it.
  bool MayHaveBegun() const;
  // As far as its reports tell, it may be in a step with the request: it may have begun, and its
  // next chunk is the plan's next.
  bool MayCompute(const Member& member) const;
  // All members of a chunk that are here have ended it.
  bool HasEnded(size_t chunk) const;
  // A chunk begins when the last of its members has entered it: the others wait for that one.
  struct Entered {
    bool all = false;
    TimeUs last_us = -1;  // of those that have
  };
  Entered EnteredOf(size_t chunk) const;
  // The router has reported that the client has every token, and there was only one plan. Then the
  // decode instance has ended by itself, after every member committed, and nothing is left to
  // cancel. A cancel could reach a member before the answer to its Commit; that member would count
  // its handoff as failed.
  bool RanToItsEnd() const;
  // When something of it is due next.
  TimeUs NextTimer() const { return std::min(deadline_us, asking_until_us); }
};

// It has no plan, and waits until it gets one.
inline bool WaitsHere(const Request& request) {
  return request.state == State::kQueued || request.state == State::kParked ||
         (request.state == State::kGrouping && request.decode == InstanceId{});
}

}  // namespace skein::scheduler::orchestrator
