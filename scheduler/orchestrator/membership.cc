// Instances register, report, leave and die; what they say is reconciled with what is believed.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

void OrchestratorCore::Impl::On(const RegisterCalled& event) {
  absl::StatusOr<Registry::Registration> registered =
      registry_.Register(event.request.identity, now_);
  RegisterReply reply;
  reply.status = registered.status();
  if (registered.ok()) {
    for (InstanceId replaced : registered->replaced) Lose(replaced, "was replaced");
    reply.instance = registered->id;
    reply.lease_us = config_.instance_lease_us;
  }
  effects_.push_back(AnswerRegister{event.call, std::move(reply)});
}

void OrchestratorCore::Impl::On(const ReportCalled& event) {
  bool fresh = false;
  absl::StatusOr<Instance*> instance = registry_.Report(event.request, now_, &fresh);
  ReportReply reply{instance.status(), {}};
  if (instance.ok() && fresh) {
    for (const EndedRequest& ended : event.request.ended) TakeEnded(**instance, ended);
    FailMissing((*instance)->id);
    reply.cancel = UnknownOf(**instance);
  }
  effects_.push_back(AnswerReport{event.call, std::move(reply)});
}

void OrchestratorCore::Impl::TakeEnded(const Instance& instance, const EndedRequest& ended) {
  Request* request = Find(ended.id, ended.epoch);
  if (request == nullptr) return;
  if (request->decode == instance.id) {
    TakeFromDecode(*request);  // nothing to cancel there
    if (ended.status.ok()) return Finish(*request);
    return Fail(*request, ended.status);
  }
  if (request->prefill != instance.id) return;
  const bool begun = request->state != State::kAssigning && request->state != State::kAssigned;
  TakeFromPrefill(*request);
  if (ended.status.ok()) return;  // committed: the decode instance has it
  if (!begun && ended.status.code() == absl::StatusCode::kUnavailable) return Assign(*request);
  Fail(*request, ended.status);
}

// What it holds and this orchestrator does not know. A predecessor's requests (older epochs) are
// left alone.
std::vector<HeldRequest> OrchestratorCore::Impl::UnknownOf(const Instance& instance) const {
  std::vector<HeldRequest> unknown;
  for (const auto& [id, epoch] : instance.held) {
    if (epoch.value < config_.first_epoch) continue;
    const auto it = instance.placed.find(id);
    if (it == instance.placed.end() || it->second != epoch) unknown.push_back({id, epoch});
  }
  return unknown;
}

// What it should hold and does not, although it was known to hold it well before this report was
// made (a report is never under way for as long as a lease).
void OrchestratorCore::Impl::FailMissing(InstanceId id) {
  const Instance& instance = *registry_.Find(id);
  const TimeUs long_ago = now_ - config_.instance_lease_us;
  std::vector<RequestId> missing;
  for (const auto& [request_id, epoch] : instance.placed) {
    const auto held = instance.held.find(request_id);
    if (held != instance.held.end() && held->second == epoch) continue;
    const Request& request = requests_.at(request_id);
    const TimeUs since = request.decode == id ? request.placed_us : request.assigned_us;
    if (since <= long_ago) missing.push_back(request_id);
  }
  for (RequestId request_id : missing) {
    Fail(requests_.at(request_id), absl::UnavailableError("an instance lost the request"));
  }
}

void OrchestratorCore::Impl::On(const UnregisterCalled& event) {
  const Instance* instance = registry_.Find(event.request.instance);
  UnregisterReply reply;
  if (instance == nullptr || instance->identity.incarnation != event.request.incarnation) {
    reply.status = absl::NotFoundError("unknown instance");
  } else {
    Lose(instance->id, "has left");
    --instances_lost_;
  }
  effects_.push_back(AnswerUnregister{event.call, std::move(reply)});
}

// Requests move off the instance before it is forgotten; none is placed on it again.
void OrchestratorCore::Impl::Lose(InstanceId id, const std::string& why) {
  Instance* instance = registry_.Find(id);
  if (instance == nullptr) return;
  ++instances_lost_;
  const Role role = instance->identity.role;
  const std::map<RequestId, Epoch> placed = std::move(instance->placed);
  const std::string what =
      absl::StrCat(role == Role::kPrefill ? "prefill" : "decode", " instance ", id.value, " ", why);
  registry_.Remove(id);
  for (const auto& [request_id, epoch] : placed) {
    Request* request = Find(request_id, epoch);
    if (request == nullptr) continue;
    role == Role::kPrefill ? LosePrefill(*request, what) : LoseDecode(*request, what);
  }
}

// Once placed, only the decode instance knows whether the KV was committed: if it was, the stream
// goes on; if not, its lease ends it, and it says so.
void OrchestratorCore::Impl::LosePrefill(Request& request, const std::string& why) {
  TakeFromPrefill(request);
  if (request.state != State::kPlaced) Fail(request, absl::UnavailableError(why));
}

// A reservation that was still under way is made elsewhere; a stream is over.
void OrchestratorCore::Impl::LoseDecode(Request& request, const std::string& why) {
  if (request.state == State::kReserving) return BackToWaiting(request);
  TakeFromDecode(request);
  Fail(request, absl::UnavailableError(why));
}

}  // namespace skein::scheduler
