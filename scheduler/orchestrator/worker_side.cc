// Instances register, report, leave and fail; their reports are reconciled with the orchestrator's
// records.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/explain/slower_path.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

void OrchestratorCore::Impl::On(const RegisterCalled& event) {
  const WorkerIdentity& identity = event.request.identity;
  Follow(event.request.seen);
  const int64_t instances = registry_.Count(identity.role);
  absl::StatusOr<Registry::Registration> registered =
      registry_.Register(event.request, event.call, now_);
  RegisterReply reply;
  reply.status = registered.status();
  if (!registered.ok()) {
    effects_.push_back(AnswerRegister{event.call, std::move(reply)});
    return;
  }
  // The welcome goes first. What the worker holds is compared with the records before requests of
  // an instance that it replaces are moved.
  const bool came = registry_.Count(identity.role) != instances;
  const Instance& instance = *registry_.Find(registered->id);
  reply.instance = instance.id;
  reply.lease_us = config_.instance_lease_us;
  reply.cancel = instance.UnknownOf(event.request.held, first_epoch_);
  reply.generation = {generation_, config_.incarnation};
  effects_.push_back(AnswerRegister{event.call, std::move(reply)});
  if (instance.drain_order.has_value()) {
    sender_.Send(CallDrainOrder{instance.id, {.drain = *instance.drain_order}});
  }
  if (registered->former != CallId{}) {
    LeaveStream(registered->id, registered->former);
    effects_.push_back(CloseWorker{registered->former,
                                   absl::AbortedError("the worker has opened another stream")});
  }
  Resync(registered->id, event.request);
  for (InstanceId replaced : registered->replaced) {
    Lose(replaced, "was replaced by another process at its address");
  }
  if (came && !gone_.InstanceCame(identity.role, identity.model)) {
    registry_.NoteSuccessor(identity.role, identity.model);
  }
  NoteRoom(identity.model);
  placement_.NoteChange(identity.model);
}

void OrchestratorCore::Impl::On(const WorkerDisconnected& event) {
  Instance* instance = registry_.FindConnected(event.call);
  if (instance == nullptr) return;
  registry_.Disconnect(*instance);
  LeaveStream(instance->id, event.call);
}

// Requests sent on it are sent again on the next stream.
void OrchestratorCore::Impl::LeaveStream(InstanceId id, CallId stream) {
  for (const auto& [request_id, placement] : registry_.Find(id)->placed) {
    Request& request = requests_.At(request_id);
    if (request.asking == stream) ForgetAsking(request);
  }
}

void OrchestratorCore::Impl::On(const ReportCalled& event) {
  const absl::StatusOr<Registry::Reported> reported = registry_.Report(event.request, now_);
  ReportReply reply{reported.status()};
  if (reported.ok()) {
    const Instance& reporter = *reported->instance;
    reply.want_full = !reported->digest_fits;
    digest_mismatches_ += reply.want_full ? 1 : 0;
    for (const HeldRequest& held : event.request.held) {
      Request* request = Find(held.id, held.epoch);
      Member* member = request == nullptr ? nullptr : request->MemberAt(reporter.id);
      if (member != nullptr) TakeProgress(*request, *member, held);
    }
    for (const EndedRequest& ended : event.request.ended) TakeEnded(reporter, ended);
    LeaveDraining(reporter);
    NoteRoom(reporter.identity.model);
    placement_.NoteChange(reporter.identity.model);
  }
  effects_.push_back(AnswerReport{event.call, std::move(reply)});
}

void OrchestratorCore::Impl::TakeEnded(const Instance& instance, const EndedRequest& ended) {
  Request* request = Find(ended.id);
  NoteHandoff(request, instance, ended);
  if (request == nullptr) {
    return explanations_.TakeEnded(ended, instance.id);
  }
  if (ended.engine_failed) {  // under whichever of its epochs
    request->engines_failed.insert(instance.id);
    if (FailSuspect(*request)) return;
  }
  if (abandoned_.Is(ended.id, ended.epoch)) {
    return HasLeft(*request, instance.id);
  }
  if (request->epoch != ended.epoch) return;
  if (request->decode == instance.id) return TakeDecodeEnded(*request, ended);
  if (Member* member = request->MemberAt(instance.id)) TakePrefillEnded(*request, *member, ended);
}

// The request may have ended before the instances that wrote its KV report.
void OrchestratorCore::Impl::NoteHandoff(Request* alive, const Instance& from,
                                         const EndedRequest& ended) {
  if (ended.handoff.path.empty()) return;
  Explanation* explanation =
      alive != nullptr ? &alive->explanation : explanations_.FindEnded(ended.id);
  const bool planned = explanation != nullptr && !explanation->plans.empty();
  const Instance* to = planned ? registry_.Find(explanation->plans.back().decode) : nullptr;
  explanations_.NoteHandoff(
      ended.epoch,
      {from.id, ended.handoff,
       WhySlower(ended.handoff, from.identity.host, to == nullptr ? "" : to->identity.host)},
      explanation);
}

void OrchestratorCore::Impl::TakeDecodeEnded(Request& request, const EndedRequest& ended) {
  if (ended.unclaimed) return TakeUnclaimed(request, ended.status);
  if (ended.status.ok()) {
    Opened(request);          // word of it may be lost: the router has yet to hear of the place
    NotePrefilled(request);   // the instances that wrote the KV may report later
    TakeFromDecode(request);  // nothing to cancel there
    return Finish(request, ended.reason);
  }
  // A request in a step had all its KV, whatever the writing instances have reported.
  const bool incomplete = (request.HasMembersHere() || request.unsure) && !ended.engine_failed;
  if (incomplete && MayReplan(request, ended.status)) {
    return Replan(request, ended.status);
  }
  TakeFromDecode(request);
  if (ended.reason == FinishReason::kCancelled) {  // its router closed the token stream
    effects_.push_back(SendPlanUpdate{request.spec->id, PlanEnded{}});
    return CloseByRouter(request);  // as the router itself will say
  }
  Fail(request, ended.status);
}

// A router that is heard of may reach another decode instance. One that is not may be dead: then
// nobody would take the tokens there either.
void OrchestratorCore::Impl::TakeUnclaimed(Request& request, const absl::Status& why) {
  Note(Degraded::kUnclaimed, request);
  if (router_side_.IsConnected(request.spec->id.router)) return Replan(request, why);
  TakeFromDecode(request);
  Fail(request, why);
}

void OrchestratorCore::Impl::TakePrefillEnded(Request& request, Member& member,
                                              const EndedRequest& ended) {
  const InstanceId instance = member.instance;
  const bool whole = request.IsPlanWhole();
  MemberDone(request, member);
  if (ended.status.ok() && whole) return;  // committed: the decode instance has it
  const bool begun = request.state != State::kAssigning && request.state != State::kAssigned;
  const bool handed_back =
      !begun && (absl::IsUnavailable(ended.status) || absl::IsResourceExhausted(ended.status));
  if (handed_back) {
    request.tried_prefill.insert(instance);
    return GiveUpPlan(request, ended.status);
  }
  if (ended.status.ok()) {
    return Replan(request, absl::InternalError("an instance ended before its plan"));
  }
  if (MayReplan(request, ended.status)) return Replan(request, ended.status);
  Fail(request, ended.status);
}

// The instance takes no more chunks of an incomplete plan.
void OrchestratorCore::Impl::LeaveDraining(const Instance& instance) {
  if (instance.Serves()) return;
  std::vector<RequestId> unfinished;
  for (const auto& [id, placement] : instance.placed) {
    const Request& request = requests_.At(id);
    if (request.rolling_key != 0 && request.PlannedTokens() < PromptTokens(*request.spec)) {
      unfinished.push_back(id);
    }
  }
  for (const RequestId id : unfinished) {
    Replan(requests_.At(id), absl::UnavailableError("a prefill instance is leaving"));
  }
}

void OrchestratorCore::Impl::On(const UnregisterCalled& event) {
  const Instance* instance = registry_.Find(event.request.instance);
  UnregisterReply reply;
  if (instance == nullptr || instance->identity.incarnation != event.request.incarnation) {
    reply.status = absl::NotFoundError("unknown instance");
  } else {
    Lose(instance->id, "has left", /*left=*/true);
  }
  effects_.push_back(AnswerUnregister{event.call, std::move(reply)});
}

// From now on nothing is placed there.
void OrchestratorCore::Impl::On(const DrainCalled& event) {
  const DrainRequest& request = event.request;
  DrainReply reply;
  const bool instance = request.instance != InstanceId{};
  reply.status = instance ? registry_.Drain(request) : router_side_.Drain(request);
  if (reply.status.ok() && instance) {
    const Instance& ordered = *registry_.Find(request.instance);
    sender_.Send(CallDrainOrder{ordered.id, {.drain = !request.undo}});
    LeaveDraining(ordered);
    NoteRoom(ordered.identity.model);
    placement_.NoteChange(ordered.identity.model);
  }
  effects_.push_back(AnswerDrain{event.call, std::move(reply)});
}

// Requests move off the instance before it is forgotten; none is placed on it again.
void OrchestratorCore::Impl::Lose(InstanceId id, const std::string& why, bool left) {
  Instance* instance = registry_.Find(id);
  if (instance == nullptr) return;
  if (!left) ++lost_[{instance->identity.model, instance->identity.role}];
  gone_.Add({.instance = id,
             .role = instance->identity.role,
             .model = instance->identity.model,
             .endpoint = instance->identity.endpoint,
             .at_us = now_,
             .why = why,
             .left = left,
             .replaced = instance->succeeded});
  const Role role = instance->identity.role;
  const CallId connection = instance->connection;
  const std::map<RequestId, Placement> placed = registry_.TakePlaced(*instance);
  const std::string what =
      absl::StrCat(role == Role::kPrefill ? "prefill" : "decode", " instance ", id.value, " ", why);
  NoteRoom(instance->identity.model);
  placement_.NoteChange(instance->identity.model);
  registry_.Remove(id);
  if (connection != CallId{} && !left) {
    effects_.push_back(CloseWorker{connection, absl::NotFoundError("the instance was given up")});
  }
  for (const auto& [request_id, placement] : placed) {
    Request* request = Find(request_id, placement.epoch);
    if (request == nullptr) continue;
    role == Role::kPrefill ? LosePrefill(*request, id, what, left) : LoseDecode(*request, what);
  }
  for (const RequestId request_id : abandoned_.At(id)) HasLeft(requests_.At(request_id), id);
}

// Once placed, only the decode instance knows whether the KV was committed. If so, the token stream
// continues; if not, the writer's lease expires there and the decode instance reports it. While
// other members still have parts to commit, the KV cannot be complete.
void OrchestratorCore::Impl::LosePrefill(Request& request, InstanceId instance,
                                         const std::string& why, bool left) {
  const bool whole = request.IsPlanWhole();
  if (Member* member = request.MemberAt(instance)) member->phase = Member::Phase::kGone;
  const bool computed_there = request.state == State::kPlaced;  // not before
  if (computed_there && !left) request.lost_under.insert(instance);
  const absl::Status lost = absl::UnavailableError(why);
  const bool unsure = request.state == State::kPlaced && whole && !request.HasMembersHere();
  if (unsure) {
    request.unsure = true;
    NoteChunksEnded(request);
    return;
  }
  Replan(request, lost);
}

// The token stream is lost, unless none of its tokens can have been sampled. If the transfer is not
// known to be open, only the plan's position in the queues is lost.
void OrchestratorCore::Impl::LoseDecode(Request& request, const std::string& why) {
  const absl::Status lost = absl::UnavailableError(why);
  if (request.state != State::kPlaced) return GiveUpPlan(request, lost);
  if (request.HasMembersHere()) return Replan(request, lost);
  TakeFromDecode(request);
  Fail(request, lost);
}

}  // namespace skein::scheduler
