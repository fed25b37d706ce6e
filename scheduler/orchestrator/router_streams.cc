// The streams of routers: a router comes or comes back, says how requests ended, reports, leaves or
// is lost.
#include <algorithm>
#include <utility>

#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

void OrchestratorCore::Impl::On(const RouterConnected& event) {
  const RouterHello& hello = event.hello;
  const uint64_t router = hello.identity.router;
  Follow(hello.seen);
  const Routers::Connected connected =
      routers_.Connect(hello, event.call, now_, registry_.listening().At(now_));
  if (connected.is_new) gone_.RouterCame();
  for (const uint64_t replaced : connected.replaced) {
    LoseRouter(replaced, "was replaced by another process at its address", RouterGone::kDead);
  }
  if (connected.former != CallId{}) {
    effects_.push_back(
        CloseRouter{connected.former, absl::AbortedError("the router has opened another stream")});
  }
  for (const RouterEnd& end : hello.ended) {
    if (end.id.router == router) TakeRouterEnd(end);
  }
  ForgetEarly([router](RequestId id) { return id.router == router; });  // they are unknown
  CloseUnlisted(router, hello.requests);
  TellAgain(event.call, router, hello.requests);
  const std::optional<bool> order = routers_.Find(router)->drain_order;
  if (order.has_value()) effects_.push_back(OrderRouterDrain{event.call, *order});
}

// What the router does not have any more has ended for its client.
void OrchestratorCore::Impl::CloseUnlisted(uint64_t router,
                                           const std::vector<RouterRequest>& listed) {
  std::set<RequestId> has;
  for (const RouterRequest& one : listed) has.insert(one.id);
  for (const RequestId id : requests_.OfRouter(router)) {
    Request* request = Find(id);
    if (request != nullptr && has.count(id) == 0) CloseByRouter(*request);
  }
}

// The welcome, and what may not have been heard.
void OrchestratorCore::Impl::TellAgain(CallId call, uint64_t router,
                                       const std::vector<RouterRequest>& listed) {
  RouterWelcome welcome{.status = absl::OkStatus(),
                        .generation = {generation_, config_.incarnation},
                        .lease_us = config_.instance_lease_us,
                        .unknown = {}};
  for (const RouterRequest& one : listed) {
    const bool known = Find(one.id) != nullptr || routers_.FailureOf(one.id) != nullptr;
    if (!known) welcome.unknown.push_back(one.id);
  }
  effects_.push_back(WelcomeRouter{call, router, std::move(welcome)});
  for (const RouterRequest& one : listed) {
    if (const Request* request = Find(one.id)) {
      TellState(*request);
    } else if (const absl::Status* failure = routers_.FailureOf(one.id)) {
      effects_.push_back(SendPlanUpdate{one.id, Failed{*failure}});
    }
  }
}

void OrchestratorCore::Impl::TellState(const Request& request) {
  const RequestId id = request.spec->id;
  switch (request.state) {
    case State::kQueued:
    case State::kParked:
      effects_.push_back(SendPlanUpdate{id, scheduler::Accepted{}});
      return;
    case State::kReplanning:
      effects_.push_back(SendPlanUpdate{id, Planned{request.epoch, InstanceId{}}});
      return;
    default:
      break;
  }
  const TimeUs decided_us =
      request.explanation.plans.empty() ? 0 : request.explanation.plans.back().decided_us;
  effects_.push_back(
      SendPlanUpdate{id, Planned{request.epoch, request.members[0].instance, decided_us}});
  if (request.state == State::kPlaced) {
    effects_.push_back(SendPlanUpdate{id, PlacedOf(request)});
  }
}

// The router hears of it again, on its next stream, until it confirms.
void OrchestratorCore::Impl::TellFailed(RequestId id, absl::Status status) {
  routers_.NoteFailure(id, status);
  effects_.push_back(SendPlanUpdate{id, Failed{std::move(status)}});
}

void OrchestratorCore::Impl::On(const RouterDisconnected& event) {
  if (Router* router = routers_.FindConnected(event.call)) routers_.Disconnect(*router);
}

void OrchestratorCore::Impl::On(const RouterReported& event) {
  Router* router = routers_.FindConnected(event.call);
  if (router == nullptr) return;
  routers_.Report(*router, event.load, now_, registry_.listening().At(now_));
  effects_.push_back(AnswerRouterReport{event.call});
}

void OrchestratorCore::Impl::On(const RouterEnded& event) { TakeRouterEnd(event.end); }

// Its client has its answer, or wants none: whatever is left of the request is cancelled.
void OrchestratorCore::Impl::TakeRouterEnd(const RouterEnd& end) {
  routers_.ForgetFailure(end.id);
  ForgetEarly([&end](RequestId id) { return id == end.id; });
  if (Request* request = Find(end.id)) {
    request->router_end = end;
    CloseByRouter(*request);
  } else {
    explanations_.TakeRouterEnd(end);
  }
}

void OrchestratorCore::Impl::On(const RouterLeft& event) {
  const Router* router = routers_.FindConnected(event.call);
  if (router != nullptr) LoseRouter(router->identity.router, "has left", RouterGone::kLeft);
  effects_.push_back(AnswerRouterGoodbye{event.call});
}

// Of a router that is silent nobody knows whether it lives. Its requests that are placed are left
// to the evidence of their decode instances, which see its token streams end; it submits the others
// anew if it comes back.
void OrchestratorCore::Impl::LoseRouter(uint64_t router, const std::string& why, RouterGone how) {
  const Router& lost = *routers_.Find(router);
  gone_.Add({.endpoint = lost.identity.endpoint,
             .at_us = now_,
             .why = why,
             .left = how == RouterGone::kLeft});
  if (lost.connection != CallId{} && how != RouterGone::kLeft) {
    effects_.push_back(
        CloseRouter{lost.connection, absl::NotFoundError("the router was given up")});
  }
  routers_.Remove(router);
  ForgetEarly([router](RequestId id) { return id.router == router; });
  for (const RequestId id : requests_.OfRouter(router)) {
    Request* request = Find(id);
    if (request == nullptr) continue;
    if (how != RouterGone::kSilent || request->state != State::kPlaced) CloseByRouter(*request);
  }
}

// Workers and routers have listened to another orchestrator, or to this one's predecessor: they
// listen to this one again under a higher generation, on new streams. Epochs of the generation
// before may be the other's, too.
void OrchestratorCore::Impl::Follow(const Generation& seen) {
  const Generation own{generation_, config_.incarnation};
  if (own.MayFollow(seen)) return;
  generation_ = seen.number + 1;
  first_epoch_ = FirstNumberOf(generation_);
  last_epoch_ = last_sequence_ = first_epoch_ - 1;
  registry_.NumberFrom(first_epoch_);
  Settle();
  effects_.push_back(StoreGeneration{generation_});
  const absl::Status why = absl::AbortedError("the orchestrator takes a higher generation");
  for (const CallId stream : routers_.DisconnectAll()) {
    effects_.push_back(CloseRouter{stream, why});
  }
  for (const InstanceId id : registry_.Connected()) {
    Instance& instance = *registry_.Find(id);
    const CallId stream = instance.connection;
    registry_.Disconnect(instance);
    LeaveStream(id, stream);
    effects_.push_back(CloseWorker{stream, why});
  }
}

}  // namespace skein::scheduler
