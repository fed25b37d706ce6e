#include "scheduler/orchestrator/decode_flow.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/requests/violated.h"

namespace skein::scheduler::orchestrator {

namespace {

PlanExplanation* LatestPlan(Request& request) {  // null: it has none
  auto& plans = request.explanation.plans;
  return plans.empty() ? nullptr : &plans.back();
}

DecodePlacement::Place PlaceOf(const Request& request) {
  return {request.waiting_number, request.spec->priority};
}

// Whose request it is, what it is to reach, and with how many it shared the wait for decode room.
std::string TellClaim(const Request& request) {
  const RequestHead& spec = *request.spec;
  std::string told;
  if (!spec.tenant.empty()) {
    absl::StrAppend(&told, "; of tenant '", spec.tenant, "' with weight ", spec.tenant_weight);
  }
  const auto goal = [&told](const char* name, TimeUs goal_us) {
    if (goal_us > 0) absl::StrAppend(&told, "; ", name, " goal ", goal_us / 1000, " ms");
  };
  goal("TTFT", spec.ttft_goal_us);
  goal("TPOT", spec.tpot_goal_us);
  if (request.waited_with_tenants > 1) {
    absl::StrAppend(&told, "; waited for decode room, in turns with requests of ",
                    request.waited_with_tenants - 1, " other tenants");
  }
  return told;
}

// Placed later, it misses its TTFT.
TimeUs LatestOf(const Request& request) {
  const TimeUs goal_us = request.spec->ttft_goal_us;
  return goal_us > 0 ? request.submitted_us + goal_us : kNever;
}

}  // namespace

void DecodeFlow::Answer(Request& request, absl::Status status) {
  if (!request.asking.has_value()) return;
  PlaceDecodeReply reply{std::move(status), {}};
  if (reply.status.ok()) {
    reply.placed = PlacedOf(request);
    const Instance* lead = parts_.registry->Find(request.members[0].instance);
    if (lead != nullptr) reply.placed.writer = lead->identity.incarnation;
  }
  parts_.effects->push_back(
      AnswerPlaceDecode{*request.asking, request.spec->id, request.epoch, std::move(reply)});
  ForgetAsking(request);
}

void DecodeFlow::WaitedLong(Request& request, TimeUs now) {
  const Instance* lead = parts_.registry->Find(request.members[0].instance);
  const bool yields = !request.sequence_parallel && lead != nullptr &&
                      lead->HasSpPlanBefore(request.chunks[0].sequence);
  if (yields) {
    return Answer(request, absl::ResourceExhaustedError("no decode instance has room yet"));
  }
  request.asking_until_us = now + limits_.place_decode_wait_us;
}

void DecodeFlow::ForgetAsking(Request& request) {
  request.asking.reset();
  request.asking_until_us = kNever;
  if (request.state == State::kWaiting) {
    placement_.SetAsking(request.spec->model, PlaceOf(request), false);
  }
}

// A request keeps the place of its first asking.
void DecodeFlow::EnterLine(Request& request, TimeUs now) {
  if (request.waiting_number == 0) {
    request.waiting_number = placement_.NextNumber();
    request.waiting_since_us = now;
  }
  if (PlanExplanation* plan = LatestPlan(request); plan != nullptr && plan->waiting_us < 0) {
    plan->waiting_us = now - request.submitted_us;
  }
  parts_.requests->Enter(request, State::kWaiting);
  const RequestHead& spec = *request.spec;
  placement_.Wait(
      spec.model, PlaceOf(request), spec.id,
      {.tenant = spec.tenant, .weight = spec.tenant_weight, .latest_us = LatestOf(request)});
  entered_.push_back(request.spec->id);
  placement_.SetAsking(request.spec->model, PlaceOf(request), request.asking.has_value());
}

void DecodeFlow::LeaveLine(Request& request) {
  if (request.state == State::kWaiting) {
    placement_.Leave(request.spec->model, PlaceOf(request));
  }
}

void DecodeFlow::Assigned(Request& request, TimeUs now) {
  if (request.asking.has_value()) EnterLine(request, now);
}

void DecodeFlow::TakeFromDecode(Request& request) {
  if (Instance* instance = parts_.registry->Find(request.decode)) {
    instance->Take(request.spec->id);
    placement_.NoteChange(instance->identity.model);
  }
  request.decode = InstanceId{};
}

void DecodeFlow::BeginPlan(const Request& request) {
  for (const Member& member : request.members) {
    placement_.AddUnopened(member.instance, request.chunks[0].sequence);
  }
}

void DecodeFlow::EndUnopened(const Request& request) {
  for (const Member& member : request.members) {
    placement_.RemoveUnopened(member.instance, request.chunks[0].sequence);
  }
  placement_.NoteChange(request.spec->model);
}

void DecodeFlow::ForgetPlan(Request& request) {
  LeaveLine(request);
  TakeFromDecode(request);
  EndUnopened(request);
}

void DecodeFlow::PlaceWaiting(TimeUs now) {
  for (const std::string& model : placement_.TakeChanged()) PlaceWaiting(model, now);
  for (const RequestId id : std::exchange(entered_, {})) {
    Request* request = parts_.requests->Find(id);
    if (request == nullptr || request->state != State::kWaiting) continue;
    parts_.explanations->Note(Degraded::kDecodeWaited, request);
  }
}

// The first request that waits only for room blocks those behind it, so that large requests are not
// overtaken by small ones, but for those of a tenant that was given less.
void DecodeFlow::PlaceWaiting(const std::string& model, TimeUs now) {
  while (const std::optional<RequestId> first = placement_.FirstReady(model, now)) {
    Request& request = parts_.requests->At(*first);
    if (MustWaitForOlder(request)) {
      placement_.Block(model, PlaceOf(request), request.chunks[0].sequence);
    } else if (!TryPlace(request)) {
      return;
    }
  }
}

bool DecodeFlow::MustWaitForOlder(const Request& request) const {
  if (!request.sequence_parallel) return false;
  const PlanSequence first = request.chunks[0].sequence;
  return std::any_of(request.members.begin(), request.members.end(), [&](const Member& member) {
    return placement_.MustWait(member.instance, first);
  });
}

// Those that it has left; and those at which attempts before this one were lost, or that one of its
// prefill instances does not reach: of the latter two none if nothing else can be placed at.
std::set<InstanceId> DecodeFlow::LastResorts(const Request& request) const {
  if (request.lost_decodes.empty() && !pairs_.any()) return request.old_decodes;
  std::set<InstanceId> last = request.old_decodes;
  last.insert(request.lost_decodes.begin(), request.lost_decodes.end());
  for (const Member& member : request.members) {
    const std::set<InstanceId>& barred = pairs_.BarredFor(member.instance);
    last.insert(barred.begin(), barred.end());
  }
  const auto placeable = std::count_if(last.begin(), last.end(), [&](InstanceId id) {
    const Instance* instance = parts_.registry->Find(id);
    return instance != nullptr && instance->Placeable();
  });
  const PoolCounts& counts = parts_.registry->Counts(request.spec->model, Role::kDecode);
  return counts.placeable > placeable ? last : request.old_decodes;
}

DecodePool::Choice DecodeFlow::Choose(const Request& request, bool asked) {
  const std::set<InstanceId> last = LastResorts(request);
  return pools_.Of(request.spec->model)
      .Choose({.spec = request.spec.get(),
               .tried = &request.tried_decode,
               .old = &last,
               .asked = asked,
               .urgent = IsUrgent(request)});
}

void DecodeFlow::PlaceWithPlan(Request& request) {
  if (placement_.SomeWait(request.spec->model) || MustWaitForOlder(request)) return;
  const DecodePool::Choice choice = Choose(request, /*asked=*/false);
  if (choice.outcome != DecodePool::Outcome::kPlaced) return;
  PlaceAt(request, choice.instance, /*with_plan=*/true);
}

// True: the first in the queue got an instance and left the queue. False: nothing changed.
bool DecodeFlow::TryPlace(Request& request) {
  const DecodePool::Choice choice = Choose(request, /*asked=*/true);
  switch (choice.outcome) {
    case DecodePool::Outcome::kNoRoom:
      return false;
    case DecodePool::Outcome::kAllTried:  // this epoch was cancelled there
      request.old_decodes.merge(request.tried_decode);
      request.tried_decode.clear();
      parts_.ends->Replan(request, absl::UnavailableError("no decode instance took the request"));
      return true;
    case DecodePool::Outcome::kNone:
      parts_.ends->Fail(request, absl::UnavailableError(
                                     absl::StrCat("No decode instance of model '",
                                                  request.spec->model, "' is available. Retry.")));
      return true;
    case DecodePool::Outcome::kPlaced:
      break;
  }
  const int32_t priority = request.spec->priority;
  const size_t tenants = placement_.TenantsReady(request.spec->model, priority);
  request.waited_with_tenants = std::max(request.waited_with_tenants, tenants);
  const bool charged = std::exchange(request.decode_charged, true);
  placement_.Serve(request.spec->model, PlaceOf(request),
                   charged ? 0 : PromptTokens(*request.spec));
  parts_.requests->Enter(request, State::kReserving);
  PlaceAt(request, choice.instance, /*with_plan=*/false);
  Answer(request, absl::OkStatus());
  return true;
}

void DecodeFlow::PlaceAt(Request& request, InstanceId instance, bool with_plan) {
  request.decode = instance;
  Instance& decode = *parts_.registry->Find(instance);
  decode.Place(request.spec, request.epoch, with_plan);
  request.formation = decode.leads_formation;
  request.formation_size = decode.formation_size;
  parts_.sender->Announce(request);
  parts_.sharing->FirstPlaced(request);
}

void DecodeFlow::On(const PlaceDecodeCalled& event, TimeUs now) {
  parts_.registry->Heard(event.request.instance, now);
  const PlaceDecodeRequest& asked = event.request;
  Request* request = parts_.requests->Find(asked.id);
  Member* lead = nullptr;
  if (request != nullptr && request->epoch == asked.epoch && !request->members.empty() &&
      request->members[0].instance == asked.instance) {
    lead = request->MemberAt(asked.instance);
  }
  if (lead == nullptr) {
    absl::Status status = request == nullptr ? absl::NotFoundError("unknown request")
                                             : absl::FailedPreconditionError("epoch: stale");
    parts_.effects->push_back(
        AnswerPlaceDecode{event.call, asked.id, asked.epoch, {std::move(status), {}}});
    return;
  }
  if (asked.refused_by != InstanceId{} && asked.refused_by == request->decode) {
    TakeRefusal(*request, asked, now);
    // Planned anew, or failed.
    if (parts_.requests->Find(asked.id, asked.epoch) != request) return;
  }
  request->asking = event.call;
  request->asking_until_us = now + limits_.place_decode_wait_us;
  parts_.requests->Arm(*request);
  if (!request->sequence_parallel) parts_.pools->MayBegin(*request);
  if (request->decode != InstanceId{}) {
    Answer(*request, absl::OkStatus());
  } else if (request->state == State::kAssigned || request->state == State::kReserving) {
    EnterLine(*request, now);
  } else if (request->state == State::kWaiting) {
    placement_.SetAsking(request->spec->model, PlaceOf(*request), true);
  }  // else it enters the line when all members have accepted the plan
}

// The decode instance named to the lead did not open the transfer, or the lead cannot tell.
void DecodeFlow::TakeRefusal(Request& request, const PlaceDecodeRequest& refusal, TimeUs now) {
  const bool full = absl::IsResourceExhausted(refusal.why);
  const bool unreached = absl::IsUnavailable(refusal.why) || absl::IsDeadlineExceeded(refusal.why);
  if (unreached) NoteUnreached(refusal.instance, request.decode, now);
  parts_.explanations->Note(full ? Degraded::kDecodeFull : Degraded::kDecodeRetried, &request);
  if (PlanExplanation* plan = LatestPlan(request)) ++plan->refusals;
  if (request.state == State::kPlaced) {  // it did, and the answer was lost
    if (full) return;                     // so the next OpenTransfer finds it open
    return parts_.ends->Replan(request, refusal.why);
  }
  parts_.sender->Withdraw(request);
  if (full) {
    parts_.registry->Find(request.decode)->load.free_blocks = 0;  // until its next report
  } else {
    request.tried_decode.insert(request.decode);
  }
  TakeFromDecode(request);
  if (request.state == State::kReserving) parts_.requests->Enter(request, State::kAssigned);
}

// Requests that wait may be placed at instances that were barred for them.
void DecodeFlow::RunTimers(TimeUs now) {
  if (!pairs_.RunTimers(now)) return;
  for (const std::string& model : parts_.registry->models_seen()) placement_.NoteChange(model);
}

void DecodeFlow::On(const TransferOpened& event, TimeUs now) {
  parts_.registry->Heard(event.instance, now);
  Request* request = parts_.requests->Find(event.id, event.epoch);
  if (request != nullptr && request->decode == event.instance) Opened(*request, now);
}

void DecodeFlow::Opened(Request& request, TimeUs now) {
  if (request.state == State::kPlaced) return;
  // The lead then has the plan, whichever of its other answers are still on their way.
  if (!request.members.empty()) {
    Member& lead = request.members[0];
    if (!request.sequence_parallel && lead.here()) lead.phase = Member::Phase::kAccepted;
  }
  Answer(request, absl::OkStatus());
  parts_.sharing->Opened(request, now);
  parts_.requests->Enter(request, State::kPlaced);
  Instance& decode = *parts_.registry->Find(request.decode);
  decode.Opened(request.spec->id);
  parts_.registry->AwaitRouter(decode, now);
  EndUnopened(request);
  parts_.pools->MayBegin(request);
  request.explanation.placed_us = now - request.submitted_us;
  PlanExplanation& plan = request.explanation.plans.back();
  plan.decode = request.decode;
  plan.placed_us = request.explanation.placed_us;
  plan.formation = request.formation_size;
  plan.formation_epoch = request.formation;
  parts_.explanations->NotePlaced(&request);
  if (request.spec->priority != 0) {
    absl::StrAppend(&plan.how, "; of priority ", -int64_t{request.spec->priority},
                    decode.dedicated && IsUrgent(request)
                        ? ", decoded in a group that is bound for urgent requests"
                        : "");
  }
  absl::StrAppend(&plan.how, TellClaim(request));
  parts_.effects->push_back(SendPlanUpdate{request.spec->id, PlacedOf(request)});
  parts_.sender->StartMembers(request);
}

void DecodeFlow::OpenedByLead(Request& request, InstanceId instance, TimeUs now) {
  const bool leads = !request.members.empty() && request.members[0].instance == instance;
  if (leads && request.decode != InstanceId{}) Opened(request, now);
}

TimeUs DecodeFlow::OldestWait(TimeUs now) const {
  TimeUs oldest_us = 0;
  placement_.ForEachFirst([&](RequestId first) {  // of its priority, it asked first
    oldest_us = std::max(oldest_us, now - parts_.requests->At(first).waiting_since_us);
  });
  return oldest_us;
}

absl::Status DecodeFlow::CheckRequest(const Request& request) const {
  const RequestId id = request.spec->id;
  const bool must = request.state == State::kReserving || request.state == State::kPlaced;
  const bool may = must || request.state == State::kAssigning ||
                   request.state == State::kAssigned || request.state == State::kSharing ||
                   request.state == State::kGrouping;
  const bool has_place = request.decode != InstanceId{};
  if (must && !has_place) return Violated(2, id, "has no decode place");
  if (has_place && !may) return Violated(2, id, "has a decode place in a state that has none");
  using Standing = DecodePlacement::Standing;
  const Standing standing = placement_.StandingOf(request.spec->model, PlaceOf(request), id);
  const bool in_line = standing != Standing::kAbsent;
  if ((request.state == State::kWaiting) != in_line) {
    return Violated(
        3, id,
        in_line ? "is in a waiting line but does not wait" : "waits but is in no waiting line");
  }
  if (in_line && request.asking.has_value() != (standing != Standing::kNotAsking)) {
    return Violated(3, id, "has an open PlaceDecode in one table but not in the other");
  }
  if (standing == Standing::kBlocked && !MustWaitForOlder(request)) {
    return Violated(3, id, "waits for a plan whose transfers are open");
  }
  return absl::OkStatus();
}

absl::Status DecodeFlow::CheckInvariants() const {
  absl::Status found = placement_.CheckInvariants();
  if (found.ok()) found = pools_.CheckInvariants();
  if (found.ok()) found = pairs_.CheckInvariants();
  size_t waiting = 0;
  DecodePlacement::Unopened unopened;
  parts_.requests->ForEach([&](const Request& request) {
    if (found.ok()) found = CheckRequest(request);
    waiting += request.state == State::kWaiting ? 1 : 0;
    if (request.state == State::kPlaced || request.chunks.empty()) return;
    for (const Member& member : request.members) {
      unopened[member.instance].insert(request.chunks[0].sequence);
    }
  });
  if (!found.ok()) return found;
  if (waiting != placement_.waiting()) {
    return absl::InternalError(
        "OrchestratorCore 3: a waiting line holds requests that do not wait");
  }
  if (unopened == placement_.unopened()) return absl::OkStatus();
  return absl::InternalError(
      "OrchestratorCore 9: the list of plans with unopened transfers is wrong");
}

}  // namespace skein::scheduler::orchestrator
