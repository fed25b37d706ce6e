#include "scheduler/orchestrator/worker_side.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/requests/violated.h"

namespace skein::scheduler::orchestrator {

void WorkerSide::NoteRoom(const WorkerIdentity& identity) {
  parts_.prefill->NoteRoom(identity.model);
  parts_.decode->NoteChange(identity.model);
  if (identity.role == Role::kDecode) parts_.needs->NoteChange(identity.model);
}

// A ring of prefill instances uses the links of each pair: the one that comes is told of all others
// of its pool, they of it.
std::vector<std::string> WorkerSide::PeersOf(const Instance& instance) const {
  std::vector<std::string> peers;
  const WorkerIdentity& own = instance.identity;
  if (own.role != Role::kPrefill || own.comm_address.empty()) return peers;
  for (const Instance* other : parts_.registry->Pool(own.model, Role::kPrefill)) {
    const std::string& address = other->identity.comm_address;
    if (other->id != instance.id && !address.empty()) peers.push_back(address);
  }
  return peers;
}

void WorkerSide::Introduce(const Instance& instance) {
  const WorkerIdentity& identity = instance.identity;
  if (identity.role != Role::kPrefill || identity.comm_address.empty()) return;
  for (const Instance* other : parts_.registry->Pool(identity.model, Role::kPrefill)) {
    if (other->id == instance.id || other->identity.comm_address.empty()) continue;
    parts_.sender->Send(CallPeer{other->id, {identity.comm_address}});
  }
}

// Only what stays so until one of the processes is another one.
void WorkerSide::NoteRefused(const WorkerIdentity& identity, const absl::Status& why, TimeUs now) {
  if (!absl::IsFailedPrecondition(why)) return;
  parts_.refused->Refuse(
      {.what = identity.role == Role::kPrefill ? "prefill-worker" : "decode-worker",
       .model = identity.model,
       .endpoint = identity.endpoint,
       .version = identity.build.version,
       .why = std::string(why.message())},
      now);
}

absl::StatusOr<Registry::Registration> WorkerSide::Register(const RegisterCalled& event,
                                                            TimeUs now) {
  const RegisterRequest& hello = event.request;
  absl::Status late =
      streams_.Take({hello.identity.endpoint, hello.identity.incarnation.value}, hello.stream);
  if (!late.ok()) return late;
  auto registered = parts_.registry->Register(hello, event.call, now);
  if (registered.ok()) {
    parts_.refused->Take(hello.identity.endpoint);
  } else {
    NoteRefused(hello.identity, registered.status(), now);
  }
  return registered;
}

void WorkerSide::Connect(const RegisterCalled& event, const Generation& own, TimeUs now) {
  const WorkerIdentity& identity = event.request.identity;
  const int64_t instances = parts_.registry->Count(identity.role);
  const absl::StatusOr<Registry::Registration> registered = Register(event, now);
  RegisterReply reply;
  reply.status = registered.status();
  if (!registered.ok()) {
    parts_.effects->push_back(AnswerRegister{event.call, std::move(reply)});
    return;
  }
  // The welcome goes first. What the worker holds is compared with the records before requests of
  // an instance that it replaces are moved.
  const bool came = parts_.registry->Count(identity.role) != instances;
  const Instance& instance = *parts_.registry->Find(registered->id);
  parts_.groups->Came(instance, now, registered->replaced);
  reply.instance = instance.id;
  reply.lease_us = limits_.lease_us;
  reply.cancel = instance.UnknownOf(event.request.held, parts_.numbers->first_epoch());
  AddMoved(instance, event.request.held, &reply.cancel);
  reply.generation = own;
  reply.peers = PeersOf(instance);
  reply.build = parts_.build;
  parts_.effects->push_back(AnswerRegister{event.call, std::move(reply)});
  if (came) Introduce(instance);
  if (!instance.reached) {
    parts_.effects->push_back(
        DialWorker{instance.id, identity.incarnation, identity.endpoint, false});
  }
  if (instance.drain_order.has_value()) {
    parts_.sender->Send(CallDrainOrder{instance.id, {.drain = *instance.drain_order}});
  }
  const GroupOrder group = parts_.groups->OrderOf(instance.id);
  if (group.generation != 0) parts_.sender->Send(CallGroup{instance.id, group});
  parts_.formations->Reconnected(instance.id, event.request.formation, now);
  if (registered->former != CallId{}) {
    LeaveStream(registered->id, registered->former);
    parts_.effects->push_back(CloseWorker{
        registered->former, absl::AbortedError("the worker has opened another stream")});
  }
  Resync(registered->id, event.request, now);
  LeaveDraining(instance, now);
  for (InstanceId replaced : registered->replaced) {
    Lose(replaced, "was replaced by another process at its address", Loss::kEnded, now);
  }
  if (came && !parts_.gone->InstanceCame(identity.role, identity.model)) {
    parts_.registry->NoteSuccessor(identity.role, identity.model);
  }
  NoteRoom(identity);
}

void WorkerSide::On(const WorkerDisconnected& event, TimeUs) {
  Instance* instance = parts_.registry->FindConnected(event.call);
  if (instance == nullptr) return;
  parts_.registry->Disconnect(*instance);
  LeaveStream(instance->id, event.call);
  const WorkerIdentity& identity = instance->identity;
  parts_.effects->push_back(
      DialWorker{instance->id, identity.incarnation, identity.endpoint, true});
}

// Requests sent on it are sent again on the next stream.
void WorkerSide::LeaveStream(InstanceId id, CallId stream) {
  for (const auto& [request_id, placement] : parts_.registry->Find(id)->placed) {
    Request& request = parts_.requests->At(request_id);
    if (request.asking == stream) parts_.decode->ForgetAsking(request);
  }
}

void WorkerSide::On(const ReportCalled& event, TimeUs now) {
  const absl::StatusOr<Registry::Reported> reported = parts_.registry->Report(event.request, now);
  ReportReply reply{reported.status()};
  if (reported.ok()) {
    const Instance& reporter = *reported->instance;
    Judge(*reported->instance, now);
    reply.want_full = !reported->digest_fits;
    digest_mismatches_ += reply.want_full ? 1 : 0;
    for (const HeldRequest& held : event.request.held) {
      Request* request = parts_.requests->Find(held.id, held.epoch);
      if (request != nullptr && request->decode == reporter.id) {
        parts_.explanations->NotePreemptions(held.preemptions, request);
      }
      Member* member = request == nullptr ? nullptr : request->MemberAt(reporter.id);
      if (member == nullptr) continue;
      if (held.opened) parts_.decode->OpenedByLead(*request, reporter.id, now);
      parts_.prefill->TakeProgress(*request, *member, held, now);
    }
    for (const EndedRequest& ended : event.request.ended) ended_.Take(reporter, ended, now);
    parts_.groups->Reported(reporter.id, reporter.load, now);
    parts_.formations->Reported(reporter.id, now);
    LeaveDraining(reporter, now);
    LeaveSuspect(reporter, now);
    LeaveStuck(reporter, now);
    NoteRoom(reporter.identity);
    const bool moves = reporter.identity.role == Role::kDecode && reporter.draining();
    if (moves) reply.elsewhere = RoomToMove(reporter.identity.model);
  }
  parts_.effects->push_back(AnswerReport{event.call, std::move(reply)});
}

void WorkerSide::On(const AssignReplied& event, TimeUs now) {
  parts_.registry->Heard(event.instance, now);
  Request* request = parts_.requests->Find(event.id);
  if (request == nullptr) return;
  const absl::Status& status = event.reply.status;
  if (parts_.replanner->IsGivenUp(event.id, event.epoch)) {
    if (!status.ok()) parts_.replanner->HasLeft(*request, event.instance, now);
    return;
  }
  Member* member = request->epoch == event.epoch ? request->MemberAt(event.instance) : nullptr;
  if (member == nullptr || member->assigned != event.sequence) return;
  if (status.ok()) return parts_.prefill->Accepted(*request, *member, now);
  if (status.code() == absl::StatusCode::kInvalidArgument)
    return parts_.ends->Fail(*request, status);
  member->phase = Member::Phase::kLacksPlan;
  request->tried_prefill.insert(event.instance);
  const absl::Status why =
      absl::UnavailableError(absl::StrCat("prefill instance ", event.instance.value,
                                          " did not take it: ", std::string(status.message())));
  const bool for_all = absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
                       absl::IsResourceExhausted(status);
  if (!for_all) return parts_.replanner->Replan(*request, why, now);
  // It takes nothing now: no fault of the request.
  parts_.registry->Avoid(*parts_.registry->Find(event.instance));
  parts_.replanner->GiveUpPlan(*request, why, now);
}

void WorkerSide::On(const UnregisterCalled& event, TimeUs now) {
  const Instance* instance = parts_.registry->Find(event.request.instance);
  UnregisterReply reply;
  if (instance == nullptr || instance->identity.incarnation != event.request.incarnation) {
    reply.status = absl::NotFoundError("unknown instance");
  } else {
    Lose(instance->id, "has left", Loss::kLeft, now);
  }
  parts_.effects->push_back(AnswerUnregister{event.call, std::move(reply)});
}

absl::Status WorkerSide::Drain(const DrainRequest& request, TimeUs now) {
  absl::Status status = parts_.registry->Drain(request);
  if (!status.ok()) return status;
  const Instance& ordered = *parts_.registry->Find(request.instance);
  parts_.sender->Send(CallDrainOrder{ordered.id, {.drain = !request.undo}});
  LeaveDraining(ordered, now);
  NoteRoom(ordered.identity);
  return status;
}

bool WorkerSide::MayMiss(const Instance& instance) const {
  return instance.identity.role == Role::kDecode &&
         parts_.routers->HeardBy(instance.identity.incarnation) > 0;
}

void WorkerSide::OrderGroups(TimeUs now) {
  for (auto& [id, order] :
       parts_.groups->TakeDue(*parts_.registry, parts_.numbers->first_epoch(), now)) {
    const bool first = order.index == 0;
    parts_.sender->Send(CallGroup{id, std::move(order)});
    if (first) parts_.formations->Regrouped(id, now);
  }
}

void WorkerSide::LoseTheSilent(TimeUs now) {
  for (const InstanceId id : parts_.registry->Listened(now)) {
    Instance& silent = *parts_.registry->Find(id);
    if (MayMiss(silent)) {
      misses_ += parts_.registry->Miss(silent) ? 1 : 0;
    } else {
      const char* why = silent.missed ? "was lost: its lease expired, and no router hears it"
                                      : "was lost: its lease expired";
      Lose(id, why, silent.connected() ? Loss::kSilent : Loss::kEnded, now);
    }
  }
}

void WorkerSide::CloseStreams(const absl::Status& why) {
  for (const InstanceId id : parts_.registry->Connected()) {
    Instance& instance = *parts_.registry->Find(id);
    const CallId stream = instance.connection;
    parts_.registry->Disconnect(instance);
    LeaveStream(id, stream);
    parts_.effects->push_back(CloseWorker{stream, why});
  }
}

// Requests move off the instance before it is forgotten; none is placed on it again.
void WorkerSide::Lose(InstanceId id, const std::string& why, Loss how, TimeUs now) {
  Instance* instance = parts_.registry->Find(id);
  if (instance == nullptr) return;
  if (how != Loss::kLeft) ++lost_[{instance->identity.model, instance->identity.role}];
  parts_.gone->Add({.instance = id,
                    .role = instance->identity.role,
                    .model = instance->identity.model,
                    .endpoint = instance->identity.endpoint,
                    .at_us = now,
                    .why = why,
                    .left = how == Loss::kLeft,
                    .replaced = instance->succeeded});
  const Placements placed = instance->TakeAll();
  const WorkerIdentity identity = instance->identity;
  const CallId connection = instance->connection;
  const bool prefill = identity.role == Role::kPrefill;
  const Lost lost{id, identity.incarnation, how,
                  absl::StrCat(prefill ? "prefill" : "decode", " instance ", id.value, " ", why)};
  NoteRoom(identity);
  parts_.registry->Remove(id);
  leaving_.erase(id);
  left_suspects_.erase(id);
  left_stuck_.erase(id);
  paces_.Forget(id);
  parts_.decode->ForgetInstance(id);
  parts_.prefill->ForgetInstance(id);
  SwitchNotes* switches = parts_.explanations->switches();
  switches->Leaves(id, now);
  parts_.formations->Left(id, now);
  parts_.groups->Left(id, now);
  if (connection != CallId{} && how != Loss::kLeft) {
    parts_.effects->push_back(
        CloseWorker{connection, absl::NotFoundError("the instance was given up")});
  }
  for (const auto& [request_id, placement] : placed) {
    Request* request = parts_.requests->Find(request_id, placement.epoch);
    if (request == nullptr) continue;
    prefill ? LosePrefill(*request, lost, now) : LoseDecode(*request, lost.why, now);
  }
  switches->Forget(id);
  parts_.replanner->HasLost(id, how == Loss::kEnded ? identity.incarnation : Incarnation{}, now);
}

// Once placed, only the decode instance knows whether the KV was committed. If so, the token stream
// continues; if not, the writer's lease expires there and the decode instance reports it. While
// other members still have parts to commit, the KV cannot be complete.
void WorkerSide::LosePrefill(Request& request, const Lost& lost, TimeUs now) {
  const bool whole = request.IsPlanWhole();
  if (Member* member = request.MemberAt(lost.id)) {
    const bool may_have_crashed = lost.how == Loss::kEnded && request.MayCompute(*member);
    if (may_have_crashed) request.failures.Lose(lost.incarnation, lost.id);
    member->phase = Member::Phase::kGone;
  }
  const bool unsure = request.state == State::kPlaced && whole && !request.HasMembersHere();
  if (unsure) {
    request.unsure = true;
    parts_.prefill->NoteChunksEnded(request, now);
    return;
  }
  parts_.replanner->Replan(request, absl::UnavailableError(lost.why), now);
}

// The token stream is lost, unless none of its tokens can have been sampled. If the transfer is not
// known to be open, the plan is given up: its place in the queues is lost, and of a plain prompt,
// what is computed ahead of the grant. The lead cannot keep it for another decode instance: this
// one may be alive and grant its blocks, and nobody would hear of it.
void WorkerSide::LoseDecode(Request& request, const std::string& why, TimeUs now) {
  const absl::Status lost = absl::UnavailableError(why);
  if (request.state != State::kPlaced) {
    return parts_.replanner->GiveUpPlan(request, lost, now);
  }
  if (request.HasMembersHere()) return parts_.replanner->Replan(request, lost, now);
  parts_.decode->TakeFromDecode(request);
  parts_.ends->Fail(request, lost);
}

absl::Status WorkerSide::CheckPlaces(const Request& request) const {
  const RequestId id = request.spec->id;
  std::vector<InstanceId> places;
  for (const Member& member : request.members) {
    if (member.here()) places.push_back(member.instance);
  }
  if (request.decode != InstanceId{}) places.push_back(request.decode);
  for (const InstanceId at : places) {
    const Instance* instance = parts_.registry->Find(at);
    if (instance == nullptr) {
      return Violated(2, id, "is placed at an instance that is not registered");
    }
    const auto placed = instance->placed.find(id);
    if (placed == instance->placed.end() || placed->second.epoch != request.epoch) {
      return Violated(2, id, "is not listed at its instance");
    }
  }
  return absl::OkStatus();
}

// Each instance against the first of its model, and of its model's prefill instances.
absl::Status WorkerSide::CheckPools() const {
  std::map<std::string, const WorkerIdentity*> first;
  std::map<std::string, const WorkerIdentity*> first_prefill;
  for (const auto& [id, instance] : parts_.registry->instances()) {
    const WorkerIdentity& identity = instance.identity;
    const WorkerIdentity& one = *first.try_emplace(identity.model, &identity).first->second;
    bool same = one.shape == identity.shape;
    if (identity.role == Role::kPrefill) {
      const auto& prefill = first_prefill.try_emplace(identity.model, &identity).first->second;
      same = same && prefill->max_batch_tokens == identity.max_batch_tokens;
    }
    if (!same) {
      return absl::InternalError(
          absl::StrCat("OrchestratorCore 5: model ", identity.model, " has different instances"));
    }
  }
  return absl::OkStatus();
}

absl::Status WorkerSide::CheckInvariants() const {
  absl::Status found = parts_.registry->CheckInvariants();
  if (found.ok()) found = streams_.CheckInvariants();
  if (found.ok()) found = ended_.CheckInvariants();
  if (found.ok()) found = paces_.CheckInvariants();
  size_t on_instances = 0;
  parts_.requests->ForEach([&](const Request& request) {
    if (found.ok()) found = CheckPlaces(request);
    for (const Member& member : request.members) on_instances += member.here() ? 1 : 0;
    on_instances += request.decode != InstanceId{} ? 1 : 0;
  });
  if (!found.ok()) return found;
  for (const auto& [id, instance] : parts_.registry->instances()) {
    on_instances -= instance.placed.size();
  }
  for (const std::set<InstanceId>* left : {&leaving_, &left_suspects_, &left_stuck_}) {
    for (const InstanceId id : *left) {
      if (parts_.registry->Find(id) != nullptr) continue;
      return absl::InternalError(absl::StrCat("lost instance ", id.value, " is still being left"));
    }
  }
  if (on_instances != 0) {
    return absl::InternalError("OrchestratorCore 2: an instance lists requests that are not there");
  }
  return CheckPools();
}

}  // namespace skein::scheduler::orchestrator
