// Giving up a plan: it is cancelled everywhere by epoch, and the request is planned again when it
// has ended everywhere.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "scheduler/base/plant.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

namespace {

constexpr size_t kEngineFailuresMax = 2;

std::string NamesOf(const std::set<InstanceId>& instances) {
  return absl::StrJoin(instances, ", ", [](std::string* out, InstanceId instance) {
    absl::StrAppend(out, instance.value);
  });
}

}  // namespace

// Whether a failure at a member is worth another plan. A member's failure reaches the others
// through the decode instance, with any status. A request that no engine can sample
// (INVALID_ARGUMENT), or whose logits are NaN (INTERNAL), would fail anywhere.
bool OrchestratorCore::Impl::MayReplan(const Request& request, const absl::Status& status) {
  if (request.sequence_parallel)
    return !absl::IsInvalidArgument(status) && !absl::IsInternal(status);
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsAborted(status);
}

// Without this limit, a request that makes engines fail would be planned onto one after the other.
// An instance that said nothing may have been cut off by the network: then the client may try
// again.
bool OrchestratorCore::Impl::FailSuspect(Request& request) {
  std::set<InstanceId> all = request.engines_failed;
  all.insert(request.lost_under.begin(), request.lost_under.end());
  if (all.size() < kEngineFailuresMax) return false;
  const std::string what =
      absl::StrCat(all.size(), " engines failed or were lost while they computed this request (",
                   "instances ", NamesOf(all), "): it is not planned again");
  const bool said = request.engines_failed.size() >= kEngineFailuresMax;
  Fail(request, said ? absl::InternalError(what) : absl::UnavailableError(what));
  return true;
}

void OrchestratorCore::Impl::Replan(Request& request, const absl::Status& why) {
  if (FailSuspect(request)) return;
  if (++request.replans > config_.max_replans || SKEIN_PLANT(replan_gives_up)) {
    return Fail(request, why);
  }
  GiveUpPlan(request, why);
}

// Also when an instance did not take the request; that may happen any number of times before the
// deadline and is not the request's fault.
void OrchestratorCore::Impl::GiveUpPlan(Request& request, const absl::Status& why) {
  const std::string text(why.message());
  Note(Degraded::kReplanned, request);
  if (request.state == State::kPlaced) Note(Degraded::kRecomputed, request);
  orchestrator::ExplanationLog::NoteTimes(&request);
  request.explanation.plans.back().lost = text;
  LeaveRolling(request);
  AnswerAsking(request, absl::FailedPreconditionError("epoch: planned anew"));
  LeaveLine(request);
  std::set<InstanceId> leaving;
  for (const Member& member : request.members) {
    const bool may_have_it = member.here() && member.phase != Member::Phase::kLacksPlan;
    if (may_have_it && registry_.Find(member.instance) != nullptr) leaving.insert(member.instance);
  }
  sender_.CancelAtMembers(request, text);
  sender_.CancelAt(request.decode, request, text);
  if (request.decode != InstanceId{}) request.old_decodes.insert(request.decode);
  TakeFromPrefill(request);
  TakeFromDecode(request);
  ForgetPlan(request);
  request.members.clear();
  request.chunks.clear();
  moved_.insert(request.spec->model);
  Enter(request, State::kReplanning);
  const Epoch left = std::exchange(request.epoch, Epoch{++last_epoch_});
  // Sent at once, so that the router does not take the end of the token stream for the end of the
  // request.
  effects_.push_back(SendPlanUpdate{request.spec->id, Planned{request.epoch, InstanceId{}}});
  if (leaving.empty()) return Plan(request);
  abandoned_.Add(request.spec->id, left, std::move(leaving),
                 registry_.listening().At(now_) + config_.instance_lease_us);
}

// Plans anew when no instance is left that may have the plan before.
void OrchestratorCore::Impl::HasLeft(Request& request, InstanceId instance) {
  if (abandoned_.Left(request.spec->id, instance)) Plan(request);
}

// Members that have not confirmed the plan's end within a lease are dropped; other instances are
// tried first.
void OrchestratorCore::Impl::LeaveTheSilent() {
  while (const auto overdue = abandoned_.TakeOverdue(registry_.listening().elapsed())) {
    Request& request = requests_.At(overdue->id);
    request.tried_prefill.insert(overdue->silent.begin(), overdue->silent.end());
    Plan(request);
  }
}

}  // namespace skein::scheduler
