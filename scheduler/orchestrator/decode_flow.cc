// Which instance decodes a prompt: decode_placement.h says how that is chosen, and why so.
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

void OrchestratorCore::Impl::AnswerAsking(Request& request, absl::Status status) {
  if (!request.asking.has_value()) return;
  PlaceDecodeReply reply{std::move(status), {}};
  if (reply.status.ok()) reply.placed = PlacedOf(request);
  effects_.push_back(
      AnswerPlaceDecode{*request.asking, request.spec->id, request.epoch, std::move(reply)});
  ForgetAsking(request);
}

void OrchestratorCore::Impl::ForgetAsking(Request& request) {
  request.asking.reset();
  request.asking_until_us = kNever;
  if (request.state == State::kWaiting) {
    placement_.SetAsking(request.spec->model, request.waiting_number, false);
  }
}

// A request keeps the place of its first asking.
void OrchestratorCore::Impl::EnterLine(Request& request) {
  if (request.waiting_number == 0) {
    request.waiting_number = placement_.NextNumber();
    request.waiting_since_us = now_;
  }
  Enter(request, State::kWaiting);
  placement_.Wait(request.spec->model, request.waiting_number, request.spec->id);
  placement_.SetAsking(request.spec->model, request.waiting_number, request.asking.has_value());
}

void OrchestratorCore::Impl::LeaveLine(Request& request) {
  if (request.state == State::kWaiting) {
    placement_.Leave(request.spec->model, request.waiting_number);
  }
}

void OrchestratorCore::Impl::TakeFromDecode(Request& request) {
  if (Instance* instance = registry_.Find(request.decode)) {
    instance->Take(request.spec->id);
    placement_.NoteChange(instance->identity.model);
  }
  request.decode = InstanceId{};
}

void OrchestratorCore::Impl::PlaceWaiting() {
  for (const std::string& model : placement_.TakeChanged()) PlaceWaiting(model);
}

// The first request that waits only for room blocks those behind it, so that large requests are not
// overtaken by small ones.
void OrchestratorCore::Impl::PlaceWaiting(const std::string& model) {
  while (const std::optional<RequestId> first = placement_.FirstReady(model)) {
    Request& request = requests_.At(*first);
    if (MustWaitForOlder(request)) {
      placement_.Block(model, request.waiting_number, request.chunks[0].sequence);
    } else if (!TryPlace(request)) {
      return;
    }
  }
}

bool OrchestratorCore::Impl::MustWaitForOlder(const Request& request) const {
  if (!request.sequence_parallel) return false;
  const PlanSequence first = request.chunks[0].sequence;
  return std::any_of(request.members.begin(), request.members.end(), [&](const Member& member) {
    return placement_.MustWait(member.instance, first);
  });
}

DecodePlacement::Choice OrchestratorCore::Impl::ChooseDecode(const Request& request,
                                                             bool asked) const {
  return DecodePlacement::Choose({.spec = request.spec.get(),
                                  .tried = &request.tried_decode,
                                  .old = &request.old_decodes,
                                  .asked = asked},
                                 registry_.Pool(request.spec->model, Role::kDecode));
}

// Otherwise its lead will ask.
void OrchestratorCore::Impl::PlaceWithPlan(Request& request) {
  if (placement_.SomeWait(request.spec->model) || MustWaitForOlder(request)) return;
  const DecodePlacement::Choice choice = ChooseDecode(request, /*asked=*/false);
  if (choice.outcome != DecodePlacement::Outcome::kPlaced) return;
  PlaceAt(request, choice.instance, /*with_plan=*/true);
}

// True: the first in the queue got an instance and left the queue. False: nothing changed.
bool OrchestratorCore::Impl::TryPlace(Request& request) {
  const DecodePlacement::Choice choice = ChooseDecode(request, /*asked=*/true);
  switch (choice.outcome) {
    case DecodePlacement::Outcome::kNoRoom:
      return false;
    case DecodePlacement::Outcome::kAllTried:  // this epoch was cancelled there
      request.old_decodes.merge(request.tried_decode);
      request.tried_decode.clear();
      Replan(request, absl::UnavailableError("no decode instance took the request"));
      return true;
    case DecodePlacement::Outcome::kNone:
      Fail(request,
           absl::UnavailableError(absl::StrCat("No decode instance of model '", request.spec->model,
                                               "' is available. Retry.")));
      return true;
    case DecodePlacement::Outcome::kPlaced:
      break;
  }
  LeaveLine(request);
  Enter(request, State::kReserving);
  PlaceAt(request, choice.instance, /*with_plan=*/false);
  AnswerAsking(request, absl::OkStatus());
  return true;
}

void OrchestratorCore::Impl::PlaceAt(Request& request, InstanceId instance, bool with_plan) {
  request.decode = instance;
  registry_.Find(instance)->Place(request.spec, request.epoch, with_plan);
  sender_.Announce(request);
}

void OrchestratorCore::Impl::On(const PlaceDecodeCalled& event) {
  const PlaceDecodeRequest& asked = event.request;
  Request* request = Find(asked.id);
  Member* lead = nullptr;
  if (request != nullptr && request->epoch == asked.epoch && !request->members.empty() &&
      request->members[0].instance == asked.instance) {
    lead = request->MemberAt(asked.instance);
  }
  if (lead == nullptr) {
    absl::Status status = request == nullptr ? absl::NotFoundError("unknown request")
                                             : absl::FailedPreconditionError("epoch: stale");
    effects_.push_back(
        AnswerPlaceDecode{event.call, asked.id, asked.epoch, {std::move(status), {}}});
    return;
  }
  if (asked.refused_by != InstanceId{} && asked.refused_by == request->decode) {
    TakeRefusal(*request, asked);
    if (Find(asked.id, asked.epoch) != request) return;  // planned anew, or failed
  }
  request->asking = event.call;
  request->asking_until_us = now_ + config_.begin_wait_us;
  Arm(*request);
  if (request->decode != InstanceId{}) {
    AnswerAsking(*request, absl::OkStatus());
  } else if (request->state == State::kAssigned || request->state == State::kReserving) {
    EnterLine(*request);
  } else if (request->state == State::kWaiting) {
    placement_.SetAsking(request->spec->model, request->waiting_number, true);
  }  // else it enters the line when all members have accepted the plan
}

// The decode instance named to the lead did not open the transfer, or the lead cannot tell.
void OrchestratorCore::Impl::TakeRefusal(Request& request, const PlaceDecodeRequest& refusal) {
  const bool full = absl::IsResourceExhausted(refusal.why);
  Note(full ? Degraded::kDecodeFull : Degraded::kDecodeRetried, request);
  if (request.state == State::kPlaced) {  // it did, and the answer was lost
    if (full) return;                     // so the next Grant finds it open
    return Replan(request, refusal.why);
  }
  sender_.Withdraw(request);
  if (full) {
    registry_.Find(request.decode)->load.free_blocks = 0;  // until its next report
  } else {
    request.tried_decode.insert(request.decode);
  }
  TakeFromDecode(request);
  if (request.state == State::kReserving) Enter(request, State::kAssigned);
}

void OrchestratorCore::Impl::On(const TransferOpened& event) {
  Request* request = Find(event.id, event.epoch);
  if (request != nullptr && request->decode == event.instance) Opened(*request);
}

void OrchestratorCore::Impl::Opened(Request& request) {
  if (request.state == State::kPlaced) return;
  // The lead then has the plan, whichever of its other answers are still on their way.
  Member& lead = request.members[0];
  if (!request.sequence_parallel && lead.here()) lead.phase = Member::Phase::kAccepted;
  AnswerAsking(request, absl::OkStatus());
  Enter(request, State::kPlaced);
  registry_.Find(request.decode)->Opened(request.spec->id);
  NoteOpened(request);
  request.explanation.placed_us = now_ - request.submitted_us;
  request.explanation.plans.back().decode = request.decode;
  moved_.insert(request.spec->model);
  effects_.push_back(SendPlanUpdate{request.spec->id, PlacedOf(request)});
  sender_.StartMembers(request);
}

}  // namespace skein::scheduler
