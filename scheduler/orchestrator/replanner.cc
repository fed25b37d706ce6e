#include "scheduler/orchestrator/replanner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"
#include "scheduler/orchestrator/requests/violated.h"

namespace skein::scheduler::orchestrator {

// FAILED_PRECONDITION is what a decode instance answers that does not expect this writer.
// A member's failure reaches the others through the decode instance, with any status. A request
// that no engine can sample (INVALID_ARGUMENT), or whose logits are NaN (INTERNAL), would fail
// anywhere.
bool Replanner::MayReplan(const Request& request, const absl::Status& status) {
  if (request.sequence_parallel)
    return !absl::IsInvalidArgument(status) && !absl::IsInternal(status);
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsAborted(status) || absl::IsFailedPrecondition(status);
}

bool Replanner::FailSuspect(Request& request) {
  const absl::Status verdict = request.failures.Verdict();
  if (verdict.ok()) return false;
  parts_.ends->Fail(request, verdict);
  return true;
}

void Replanner::Replan(Request& request, const absl::Status& why, TimeUs now) {
  if (FailSuspect(request)) return;
  if (++request.replans > limits_.replans_max || SKEIN_PLANT(replan_gives_up)) {
    return parts_.ends->Fail(request, why);
  }
  GiveUpPlan(request, why, now);
}

void Replanner::GiveUpPlan(Request& request, const absl::Status& why, TimeUs now) {
  const std::string text(why.message());
  parts_.sharing->Forget(request);
  request.shares_prompt = false;
  request.kept_at = {};  // it was there
  parts_.longs->Forget(request);
  request.in_group = false;
  parts_.explanations->Note(Degraded::kReplanned, &request);
  if (request.MayHaveBegun()) parts_.explanations->Note(Degraded::kRecomputed, &request);
  parts_.explanations->NoteTimes(&request);
  request.explanation.plans.back().lost = text;
  request.explanation.plans.back().lost_us = now - request.submitted_us;
  parts_.decode->Answer(request,
                        absl::FailedPreconditionError("epoch: the request was planned again"));
  std::vector<AbandonedPlans::Holder> leaving;
  for (const Member& member : request.members) {
    const bool may_have_it = member.here() && member.phase != Member::Phase::kLacksPlan;
    if (may_have_it && parts_.registry->Find(member.instance) != nullptr)
      leaving.push_back({member.instance, request.MayCompute(member)});
  }
  parts_.sender->CancelAtMembers(request, text);
  parts_.sender->CancelAt(request.decode, request, text);
  if (request.decode != InstanceId{}) request.old_decodes.insert(request.decode);
  parts_.prefill->ForgetPlan(request, now);
  parts_.decode->ForgetPlan(request);
  request.members.clear();
  request.chunks.clear();
  parts_.requests->Enter(request, State::kReplanning);
  const Epoch left = std::exchange(request.epoch, parts_.numbers->NextEpoch());
  // Sent at once, so that the router does not take the end of the token stream for the end of the
  // request.
  parts_.effects->push_back(SendPlanUpdate{
      request.spec->id,
      Planned{request.epoch, InstanceId{}, /*decided_us=*/0, request.failures.failed()}});
  if (leaving.empty()) return PlanAnew(request, now);
  abandoned_.Add(request.spec->id, left, leaving,
                 parts_.registry->listening().At(now) + limits_.lease_us);
}

// What fits no decode instance alone is a bound group's.
void Replanner::PlanAnew(Request& request, TimeUs now) {
  if (parts_.longs->IsLong(*request.spec)) return parts_.longs->Plan(request);
  parts_.prefill->Plan(request, now);
}

// Plans anew when no instance is left that may have the plan before.
void Replanner::HasLeft(Request& request, InstanceId instance, TimeUs now) {
  if (abandoned_.Left(request.spec->id, instance)) PlanAnew(request, now);
}

void Replanner::HasOnly(InstanceId instance, const std::vector<HeldRequest>& held, TimeUs now) {
  for (const RequestId id : abandoned_.At(instance)) {
    const Epoch left = abandoned_.EpochOf(id);
    const bool holds = std::any_of(held.begin(), held.end(), [&](const HeldRequest& one) {
      return one.id == id && one.epoch <= left;
    });
    if (!holds) HasLeft(parts_.requests->At(id), instance, now);
  }
}

// The decode side misses the KV of a dead writer before the instance's own lease ends here. So a
// request may have moved off the instance before its loss is known.
void Replanner::HasLost(InstanceId instance, Incarnation ended, TimeUs now) {
  for (const RequestId id : abandoned_.At(instance)) {
    Request& request = parts_.requests->At(id);
    if (ended != Incarnation{} && abandoned_.MayCompute(id, instance)) {
      request.failures.Lose(ended, instance);
      if (FailSuspect(request)) continue;
    }
    HasLeft(request, instance, now);
  }
}

// Members that have not confirmed the plan's end within a lease are dropped; other instances are
// tried first.
void Replanner::LeaveTheSilent(TimeUs now) {
  while (const auto overdue = abandoned_.TakeOverdue(parts_.registry->listening().elapsed())) {
    Request& request = parts_.requests->At(overdue->id);
    request.tried_prefill.insert(overdue->silent.begin(), overdue->silent.end());
    PlanAnew(request, now);
  }
}

absl::Status Replanner::CheckInvariants() const {
  absl::Status found = abandoned_.CheckInvariants();
  parts_.requests->ForEach([&](const Request& request) {
    if (!found.ok()) return;
    const RequestId id = request.spec->id;
    const bool replanning = request.state == State::kReplanning;
    if (replanning != abandoned_.Knows(id)) {
      found = Violated(7, id, "is being replanned in one table but not in the other");
    } else if (replanning && abandoned_.EpochOf(id) >= request.epoch) {
      found = Violated(7, id, "has the epoch of a plan that was given up");
    }
  });
  return found;
}

}  // namespace skein::scheduler::orchestrator
