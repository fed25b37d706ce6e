// What moves off an instance that is still here: it drains, hangs, or is slow beside its peers.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/base/looks.h"
#include "scheduler/orchestrator/worker_side.h"
#include "scheduler/placement/step_age.h"

namespace skein::scheduler::orchestrator {

// The instance takes no more chunks of an incomplete plan: those that it has are made anew when it
// stops serving. Afterwards it gets none.
void WorkerSide::LeaveDraining(const Instance& instance, TimeUs now) {
  if (instance.Serves()) {
    leaving_.erase(instance.id);
    return;
  }
  if (!leaving_.insert(instance.id).second) return;
  SKEIN_LOOKED(instance.placed.size());
  std::vector<RequestId> unfinished;
  for (const auto& [id, placement] : instance.placed) {
    const Request& request = parts_.requests->At(id);
    if (request.rolling_key != 0 && request.PlannedTokens() < PromptTokens(*request.spec)) {
      unfinished.push_back(id);
    }
  }
  for (const RequestId id : unfinished) {
    parts_.replanner->Replan(parts_.requests->At(id),
                             absl::UnavailableError("a prefill instance is leaving"), now);
  }
}

// For the requests of a decode instance that drains, or is set aside: at the instances that take
// new requests. All requests of the model that are not at one of the others count as requests
// there: also those whose prompt is still computed, or that wait. Blocks of a prompt that is still
// computed count where it will be decoded. While a request waits for a decode instance, others
// would wait behind it.
PoolRoom WorkerSide::RoomToMove(const std::string& model) const {
  const PoolSums& decode = parts_.registry->Sums(model, Role::kDecode);
  // A prompt that takes several prefill instances is left where it is.
  const int64_t sequence =
      std::min(parts_.registry->Sums(model, Role::kPrefill).LargestOpen(), decode.LargestOpen());
  if (sequence == 0 || parts_.decode->WaitingOf(model) > 0) return {};
  const PoolSpace& space = decode.space;
  const int64_t limit =
      space.unlimited > 0 ? std::numeric_limits<int32_t>::max() : space.request_limit;
  const int64_t there = parts_.requests->CountOf(model) - space.placed_elsewhere;
  return {.requests = std::max<int64_t>(limit - there, 0),
          .blocks = space.spare_blocks,
          .sequence_blocks = sequence};
}

// A step of the instance does not end, or it is slow. The requests that it has not begun are
// planned anew, as soon as another instance can take them. That does not count as a failure of
// these requests.
void WorkerSide::LeaveSuspect(const Instance& instance, TimeUs now) {
  const WorkerIdentity& identity = instance.identity;
  if (identity.role != Role::kPrefill) return;
  if (!instance.Suspect() && !instance.pace.TakesNothing()) {
    left_suspects_.erase(instance.id);
    return;
  }
  const bool others = parts_.registry->Counts(identity.model, identity.role).placeable > 0;
  if (!others || !left_suspects_.insert(instance.id).second) return;
  SKEIN_LOOKED(instance.placed.size());
  std::vector<RequestId> queued;
  for (const auto& [id, placement] : instance.placed) {
    if (!parts_.requests->At(id).MayHaveBegun()) queued.push_back(id);
  }
  const absl::Status why =
      absl::UnavailableError(instance.Suspect() ? "a step of a prefill instance does not end"
                                                : "a prefill instance is slow beside others");
  for (const RequestId id : queued) {
    parts_.replanner->GiveUpPlan(parts_.requests->At(id), why, now);
  }
}

// The instance hangs, or is set aside: what it holds goes on elsewhere. A slow prefill instance
// keeps the prompts that it has begun: elsewhere they would begin anew.
void WorkerSide::LeaveStuck(const Instance& instance, TimeUs now) {
  const WorkerIdentity& identity = instance.identity;
  const bool hangs =
      IsStepHung(instance.load.step_age_us, instance.load.step_estimate_us, limits_.hung_step_us);
  const bool aside = identity.role == Role::kDecode && instance.pace.pace == Pace::kAside;
  if (!hangs && !aside) {
    left_stuck_.erase(instance.id);
    return;
  }
  const bool others = parts_.registry->Counts(identity.model, identity.role).placeable > 0;
  if (!others) return;
  // What hangs is left by all at once. What is slow still streams: only as many leave it with a
  // report as others have room for.
  size_t most = instance.placed.size();
  if (!hangs) most = std::min(most, static_cast<size_t>(RoomToMove(identity.model).requests));
  if (hangs && !left_stuck_.insert(instance.id).second) return;
  hung_ += hangs ? 1 : 0;
  const absl::Status why = absl::UnavailableError(absl::StrCat(
      identity.role == Role::kPrefill ? "prefill" : "decode", " instance ", instance.id.value,
      hangs ? " hangs: its step does not end" : " was set aside: it is slow beside others"));
  SKEIN_LOOKED(most);
  std::vector<RequestId> held;
  held.reserve(most);
  for (const auto& [id, placement] : instance.placed) {
    if (held.size() == most) break;
    held.push_back(id);
  }
  for (const RequestId id : held) {
    // The end of another one may have taken it away.
    Request* request = instance.placed.count(id) == 0 ? nullptr : parts_.requests->Find(id);
    if (request == nullptr) continue;
    if (hangs && MayBeInStep(*request, instance.id)) {
      request->failures.Fail(identity.incarnation, instance.id);
      if (parts_.replanner->FailSuspect(*request)) continue;
    }
    MoveOff(*request, instance.id, why, now);
  }
}

// A step that does not end may be the fault of a request in it, which would hang the next engine,
// too. So it counts as an engine that failed under it (engine_failures.h), as it will when the
// worker gives its engine up.
bool WorkerSide::MayBeInStep(const Request& request, InstanceId at) {
  if (request.decode == at) return request.state == State::kPlaced && !request.HasMembersHere();
  for (const Member& member : request.members) {
    if (member.instance == at && member.here()) return request.MayCompute(member);
  }
  return false;
}

// Of a stream the router has all tokens so far: it tries the request again behind them.
void WorkerSide::MoveOff(Request& request, InstanceId from, const absl::Status& why, TimeUs now) {
  if (request.in_group) return;  // its group ends, or goes on without the instance
  const bool streams = request.decode == from && request.state == State::kPlaced;
  if (streams && !request.HasMembersHere()) return parts_.ends->Fail(request, why);
  const bool begun = request.decode == from ? streams : request.MayHaveBegun();
  if (begun) return parts_.replanner->Replan(request, why, now);
  parts_.replanner->GiveUpPlan(request, why, now);
}

void WorkerSide::Judge(Instance& instance, TimeUs now) {
  const WorkerIdentity& identity = instance.identity;
  const int64_t itself = instance.Placeable() ? 1 : 0;
  const bool others = parts_.registry->Counts(identity.model, identity.role).placeable > itself;
  const bool alone = instance.leads_formation == 0 && !instance.closed_by_group;
  instance.pace = paces_.Report(instance.id, identity, instance.load, alone, others, now);
  parts_.registry->Recount(instance);
}

}  // namespace skein::scheduler::orchestrator
