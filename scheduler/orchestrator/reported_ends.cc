#include "scheduler/orchestrator/reported_ends.h"

#include "scheduler/orchestrator/explain/slower_path.h"

namespace skein::scheduler::orchestrator {

void ReportedEnds::Take(const Instance& instance, const EndedRequest& ended, TimeUs now) {
  Request* request = parts_.requests->Find(ended.id);
  NotePaths(request, instance, ended);
  if (request == nullptr) {
    const bool of_another = ended.epoch.value < parts_.numbers->first_epoch();
    if (ended.engine_failed && of_another)
      early_.Add(ended.id, instance.identity.incarnation, instance.id);
    return parts_.explanations->TakeEnded(ended, instance.id);
  }
  // Under whichever of its epochs.
  const bool fails =
      ended.engine_failed && request->failures.Fail(instance.identity.incarnation, instance.id);
  if (fails) {
    if (parts_.replanner->FailSuspect(*request)) return;
    parts_.routers->TellState(*request);  // the router tells the next orchestrator
  }
  if (parts_.replanner->IsGivenUp(ended.id, ended.epoch)) {
    return parts_.replanner->HasLeft(*request, instance.id, now);
  }
  if (request->epoch != ended.epoch) return;
  if (request->decode == instance.id) return TakeDecodeEnded(*request, ended, now);
  if (Member* member = request->MemberAt(instance.id)) {
    TakePrefillEnded(*request, *member, ended, now);
  }
}

// The request may have ended before the instances that wrote its KV report.
void ReportedEnds::NotePaths(Request* alive, const Instance& from, const EndedRequest& ended) {
  Explanation* explanation =
      alive != nullptr ? &alive->explanation : parts_.explanations->FindEnded(ended.id);
  if (ended.ring.has_value() && ended.status.ok()) {
    parts_.explanations->NoteRing(ended.epoch, {from.id, *ended.ring}, explanation);
  }
  if (ended.handoff == HandoffPath{}) return;
  const bool planned = explanation != nullptr && !explanation->plans.empty();
  const Instance* to = planned ? parts_.registry->Find(explanation->plans.back().decode) : nullptr;
  parts_.explanations->NoteHandoff(
      ended.epoch,
      {from.id, ended.handoff,
       WhySlower(ended.handoff, from.identity.node, to == nullptr ? "" : to->identity.node)},
      explanation);
}

void ReportedEnds::TakeDecodeEnded(Request& request, const EndedRequest& ended, TimeUs now) {
  if (ended.unclaimed) return TakeUnclaimed(request, ended.status, now);
  if (ended.status.ok()) {
    // Word of it may be lost: the router has yet to hear of the place.
    parts_.decode->Opened(request, now);
    parts_.prefill->NotePrefilled(request, now);  // those that wrote the KV may report later
    parts_.decode->TakeFromDecode(request);       // nothing to cancel there
    return parts_.ends->Finish(request, ended.reason);
  }
  // It cannot share there, or that group is bound no more.
  const bool not_begun =
      request.state == State::kSharing ||
      (request.state == State::kGrouping && Replanner::MayReplan(request, ended.status));
  if (not_begun) {
    if (request.in_group) request.old_formations.insert(request.formation);
    return parts_.replanner->GiveUpPlan(request, ended.status, now);
  }
  // A request in a step had all its KV, whatever the writing instances have reported.
  const bool incomplete = (request.HasMembersHere() || request.unsure) && !ended.engine_failed;
  if (incomplete && Replanner::MayReplan(request, ended.status)) {
    // A router that has closed its stream says nothing about the handoff.
    const bool by_router = ended.reason == FinishReason::kCancelled;
    for (const Member& member : request.members) {
      if (by_router || !member.here()) continue;
      parts_.decode->NoteUnreached(member.instance, request.decode, now);
    }
    return parts_.replanner->Replan(request, ended.status, now);
  }
  parts_.decode->TakeFromDecode(request);
  if (ended.reason == FinishReason::kCancelled) {  // its router closed the token stream
    parts_.effects->push_back(SendPlanUpdate{request.spec->id, PlanEnded{}});
    return parts_.ends->CloseByRouter(request);  // as the router itself will say
  }
  parts_.ends->Fail(request, ended.status);
}

// A router whose lease has not expired may reach another decode instance; its stream may be broken,
// so that it never heard of this one. A router that was lost, or is absent, may be dead: then
// nobody would take the tokens there either. If it is not dead, it submits the request anew.
void ReportedEnds::TakeUnclaimed(Request& request, const absl::Status& why, TimeUs now) {
  const Router* router = parts_.routers->routers().Find(request.spec->id.router);
  if (router != nullptr && router->absent) {
    parts_.decode->TakeFromDecode(request);
    return parts_.ends->CloseByRouter(request);
  }
  parts_.explanations->Note(Degraded::kUnclaimed, &request);
  if (router != nullptr) return parts_.replanner->Replan(request, why, now);
  parts_.decode->TakeFromDecode(request);
  parts_.ends->Fail(request, why);
}

// Of the KV that this instance was to write.
void ReportedEnds::NoteHandoff(const Request& request, const EndedRequest& ended,
                               InstanceId prefill, TimeUs now) {
  if (request.decode == InstanceId{} || request.state != State::kPlaced) return;
  const bool cut = ended.status.ok() ? ended.handoff.commit_unanswered
                                     : absl::IsUnavailable(ended.status) && !ended.engine_failed;
  if (cut) {
    parts_.decode->NoteUnreached(prefill, request.decode, now);
  } else if (ended.status.ok()) {
    parts_.decode->NoteReached(prefill, request.decode);
  }
}

void ReportedEnds::TakePrefillEnded(Request& request, Member& member, const EndedRequest& ended,
                                    TimeUs now) {
  const InstanceId instance = member.instance;
  const bool whole = request.IsPlanWhole();
  if (ended.status.ok())
    parts_.decode->OpenedByLead(request, instance, now);  // before it committed
  NoteHandoff(request, ended, instance, now);
  if (ended.ring_broken) parts_.prefill->NoteRingBroken(request, now);
  parts_.prefill->MemberDone(request, member, now);
  if (ended.status.ok() && whole) return;  // committed: the decode instance has it
  const bool begun = request.state != State::kAssigning && request.state != State::kAssigned;
  const bool handed_back =
      !begun && (absl::IsUnavailable(ended.status) || absl::IsResourceExhausted(ended.status));
  if (handed_back) {
    request.tried_prefill.insert(instance);
    return parts_.replanner->GiveUpPlan(request, ended.status, now);
  }
  if (ended.status.ok()) {
    return parts_.replanner->Replan(
        request,
        absl::InternalError("an instance ended the request before it had computed its part"), now);
  }
  // Nobody here has cancelled it: its decode instance had ended it when this one committed, such as
  // with a group, and tells why itself, perhaps later.
  if (absl::IsCancelled(ended.status)) {
    return parts_.replanner->Replan(request, absl::UnavailableError(ended.status.message()), now);
  }
  if (Replanner::MayReplan(request, ended.status)) {
    return parts_.replanner->Replan(request, ended.status, now);
  }
  parts_.ends->Fail(request, ended.status);
}

}  // namespace skein::scheduler::orchestrator
