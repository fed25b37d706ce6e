#include "scheduler/orchestrator/router_side.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

namespace skein::scheduler::orchestrator {
namespace {

// From this protocol revision on decode-workers understand CancelRequest::unless_claimed.
constexpr uint32_t kCancelsUnclaimed = 1;

}  // namespace

void RouterSide::Connect(const RouterConnected& event, const Generation& own, TimeUs now) {
  const RouterHello& hello = event.hello;
  const uint64_t router = hello.identity.router;
  if (absl::Status late = streams_.Take({hello.identity.endpoint, router}, hello.stream);
      !late.ok()) {
    return Tell(WelcomeRouter{event.call, router, {.status = std::move(late)}});
  }
  const Routers::Connected connected =
      routers_.Connect(hello, event.call, now, parts_.registry->listening().At(now));
  if (connected.is_new) parts_.gone->RouterCame();
  for (const uint64_t replaced : connected.replaced) {
    Lose(replaced, "was replaced by another process at its address", Gone::kDead, now);
  }
  if (connected.former != CallId{}) {
    Tell(CloseRouter{connected.former, absl::AbortedError("the router has opened another stream")});
  }
  for (const RouterEnd& end : hello.ended) {
    if (end.id.router == router) TakeEnd(end);
  }
  early_.ForgetRouter(router);  // they are unknown
  CloseUnlisted(router, hello.requests);
  Welcome(event, own);
  const std::optional<bool> order = routers_.Find(router)->drain_order;
  if (order.has_value()) Tell(OrderRouterDrain{event.call, *order});
}

// A request that the router no longer has has ended for its client.
void RouterSide::CloseUnlisted(uint64_t router, const std::vector<RouterRequest>& listed) {
  std::set<RequestId> has;
  for (const RouterRequest& one : listed) has.insert(one.id);
  for (const RequestId id : parts_.requests->OfRouter(router)) {
    if (has.count(id) > 0) continue;
    if (Request* request = parts_.requests->Find(id)) parts_.ends->CloseByRouter(*request);
  }
}

// Also repeats the state of each listed request, because the router may have missed it.
void RouterSide::Welcome(const RouterConnected& event, const Generation& own) {
  RouterWelcome welcome{.status = absl::OkStatus(),
                        .generation = own,
                        .lease_us = lease_us_,
                        .unknown = {},
                        .cell = Cell(),
                        .build = parts_.build};
  for (const RouterRequest& one : event.hello.requests) {
    const bool known = parts_.requests->Find(one.id) != nullptr;
    if (!known && routers_.FailureOf(one.id) == nullptr) welcome.unknown.push_back(one.id);
  }
  Tell(WelcomeRouter{event.call, event.hello.identity.router, std::move(welcome)});
  for (const RouterRequest& one : event.hello.requests) {
    if (const Request* request = parts_.requests->Find(one.id)) {
      TellState(*request);
    } else if (const Failed* failure = routers_.FailureOf(one.id)) {
      Tell(SendPlanUpdate{one.id, *failure});
    }
  }
}

void RouterSide::TellState(const Request& request) {
  const RequestId id = request.spec->id;
  FailedEngines failed = request.failures.failed();
  if (WaitsHere(request)) return Tell(SendPlanUpdate{id, Accepted{std::move(failed)}});
  if (request.state == State::kReplanning) {
    return Tell(SendPlanUpdate{
        id, Planned{request.epoch, InstanceId{}, /*decided_us=*/0, std::move(failed)}});
  }
  const TimeUs decided_us =
      request.explanation.plans.empty() ? 0 : request.explanation.plans.back().decided_us;
  Tell(SendPlanUpdate{id, PlannedOf(request, *parts_.registry, decided_us)});
  if (request.state == State::kPlaced) {
    Tell(SendPlanUpdate{id, parts_.registry->PlacedAt(request.decode, request.epoch)});
  }
}

void RouterSide::TellFailed(RequestId id, Failed failed) {
  routers_.NoteFailure(id, failed);
  Tell(SendPlanUpdate{id, std::move(failed)});
}

void RouterSide::On(const RouterDisconnected& event, TimeUs now) {
  if (Router* router = routers_.FindConnected(event.call)) {
    routers_.Disconnect(*router, parts_.registry->listening().At(now));
  }
}

void RouterSide::On(const RouterReported& event, TimeUs now) {
  Router* router = routers_.FindConnected(event.call);
  if (router == nullptr) return;
  routers_.Report(*router, event.load, now, parts_.registry->listening().At(now));
  Tell(AnswerRouterReport{event.call, Cell()});
}

// By the same counts as HasCapacity of the core.
CellReport RouterSide::Cell() const {
  CellReport report{.models = {}, .routers = static_cast<int64_t>(routers_.all().size())};
  for (const std::string& model : parts_.registry->models_seen()) {
    const PoolCounts& prefill = parts_.registry->Counts(model, Role::kPrefill);
    const PoolCounts& decode = parts_.registry->Counts(model, Role::kDecode);
    if (prefill.serving == 0 || decode.serving == 0) continue;
    const bool unlimited = prefill.unlimited + decode.unlimited > 0;
    const int64_t limit = prefill.request_limit + decode.request_limit;
    const int64_t leaving = prefill.placed_not_serving + decode.placed_not_serving;
    report.models[model] = {
        .capacity = unlimited ? requests_max_ : std::min(requests_max_, limit + leaving),
        .held = parts_.requests->CountOf(model)};
  }
  return report;
}

void RouterSide::On(const RouterEnded& event, TimeUs now) {
  Heard(event.end.id.router, now);
  TakeEnd(event.end);
}

void RouterSide::Heard(uint64_t router, TimeUs now) {
  routers_.Heard(router, parts_.registry->listening().At(now));
}

// Its client has its answer, or wants none: whatever is left of the request is cancelled.
void RouterSide::TakeEnd(const RouterEnd& end) {
  routers_.ForgetFailure(end.id);
  early_.Forget(end.id);
  if (Request* request = parts_.requests->Find(end.id)) {
    if (end.how == RouterEnd::How::kResumed) NoteLost(*request);
    request->router_end = end;
    parts_.ends->CloseByRouter(*request);
  } else {
    if (end.how != RouterEnd::How::kResumed) lost_.Forget(end.id);
    parts_.explanations->TakeRouterEnd(end);
  }
}

// Its router streamed from where it was placed, or tried to, or would not try where it was planned.
void RouterSide::NoteLost(const Request& request) {
  std::set<InstanceId> decodes = request.lost_decodes;
  decodes.insert(request.old_decodes.begin(), request.old_decodes.end());
  if (request.decode != InstanceId{}) decodes.insert(request.decode);
  // Each member of an SP plan has a part of the prompt only.
  const bool alone =
      request.members.size() == 1 && request.IsPlanWhole() && request.explanation.prefilled_us >= 0;
  const InstanceId kept_at = alone ? request.members.front().instance : request.kept_at;
  lost_.Note(request.spec->id, {std::move(decodes), kept_at});
}

void RouterSide::On(const RouterLeft& event, TimeUs now) {
  const Router* router = routers_.FindConnected(event.call);
  if (router != nullptr) Lose(router->identity.router, "has left", Gone::kLeft, now);
  Tell(AnswerRouterGoodbye{event.call});
}

void RouterSide::LoseTheSilent(TimeUs now) {
  for (const uint64_t silent : routers_.TakeSilent(parts_.registry->listening().elapsed())) {
    Lose(silent, "was lost: its lease expired", Gone::kSilent, now);
  }
}

void RouterSide::LeaveTheAbsent() {
  for (const uint64_t absent : routers_.TakeAbsent(parts_.registry->listening().elapsed())) {
    early_.ForgetRouter(absent);
    LeaveUnclaimed(absent, "its router's stream broke, and the router did not come back");
  }
}

// The router may be alive and cut off from here only. Then it submits again, when it is back, what
// is not known here any more; and what it has attached to goes on, which its decode instance knows.
void RouterSide::LeaveUnclaimed(uint64_t router, const std::string& why) {
  const uint32_t revision = std::min(parts_.build.protocol.newest, kCancelsUnclaimed);
  for (const RequestId id : parts_.requests->OfRouter(router)) {
    Request* request = parts_.requests->Find(id);
    if (request == nullptr) continue;
    if (request->state != State::kPlaced) {
      parts_.ends->CloseByRouter(*request);
      continue;
    }
    const Instance* decode = parts_.registry->Find(request->decode);
    if (decode == nullptr || decode->identity.build.protocol.newest < revision) continue;
    parts_.sender->Send(CallCancel{
        decode->id, {.id = id, .epoch = request->epoch, .why = why, .unless_claimed = true}});
  }
}

// A silent router may still be alive. Its placed requests are left to their decode instances, which
// notice when its token streams end. It submits the others again if it returns.
void RouterSide::Lose(uint64_t router, const std::string& why, Gone how, TimeUs now) {
  const Router& lost = *routers_.Find(router);
  parts_.gone->Add(
      {.endpoint = lost.identity.endpoint, .at_us = now, .why = why, .left = how == Gone::kLeft});
  if (lost.connection != CallId{} && how != Gone::kLeft) {
    Tell(CloseRouter{lost.connection, absl::NotFoundError("the router was given up")});
  }
  routers_.Remove(router);
  early_.ForgetRouter(router);
  lost_.ForgetRouter(router);
  for (const RequestId id : parts_.requests->OfRouter(router)) {
    Request* request = parts_.requests->Find(id);
    if (request == nullptr) continue;
    if (how != Gone::kSilent || request->state != State::kPlaced) {
      parts_.ends->CloseByRouter(*request);
    }
  }
}

void RouterSide::CloseStreams(const absl::Status& why, TimeUs now) {
  for (const CallId stream : routers_.DisconnectAll(parts_.registry->listening().At(now))) {
    Tell(CloseRouter{stream, why});
  }
}

absl::Status RouterSide::Drain(const DrainRequest& request) {
  absl::Status status = routers_.Drain(request);
  const Router* router = routers_.Find(request.router);
  if (status.ok() && router->connection != CallId{}) {
    Tell(OrderRouterDrain{router->connection, !request.undo});
  }
  return status;
}

std::vector<SubmitCalled> RouterSide::TakeHeld(TimeUs now) {
  if (now < early_until_us_) return {};
  return early_.Take(kTakenAtOnce);
}

TimeUs RouterSide::NextTick() const {
  const TimeUs early_us = early_.empty() ? kNever : early_until_us_;
  return std::min(parts_.registry->listening().NextTick(routers_.NextDue()), early_us);
}

absl::Status RouterSide::CheckInvariants() const {
  absl::Status found = routers_.CheckInvariants();
  if (found.ok()) found = early_.CheckInvariants();
  if (found.ok()) found = lost_.CheckInvariants();
  if (found.ok()) found = streams_.CheckInvariants();
  return found;
}

}  // namespace skein::scheduler::orchestrator
