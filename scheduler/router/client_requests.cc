#include "scheduler/router/client_requests.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"

namespace skein::scheduler {
namespace {

constexpr size_t kRecentEnds = 64;
constexpr int64_t kChargedAtOnce = 16;  // tokens of an answer
constexpr TimeUs kLookAgainUs = kSecondUs / 10;

}  // namespace

void ClientRequests::Count(const ClientRequest& request, int64_t change) {
  RouterSnapshot::OfModel& model = snapshot_.models[request.spec->model];
  switch (request.state) {
    case State::kQueued:
      snapshot_.queued += change;
      model.queued += change;
      break;
    case State::kSubmitted:
    case State::kAhead:
    case State::kResuming:
      snapshot_.submitted += change;
      model.submitted += change;
      break;
    case State::kStreaming:
    case State::kStreamOver:
      snapshot_.streaming += change;
      model.streaming += change;
      break;
  }
  ++snapshot_.version;
}

void ClientRequests::SetState(ClientRequest& request, State state) {
  Count(request, -1);
  request.state = state;
  Count(request, 1);
}

std::string ClientRequests::WhyFull(const RequestHead& spec, TimeUs now) {
  none_may_until_us_ = 0;
  streams_.Ask(spec.tenant, spec.tenant_weight, now);
  places_.Ask(spec.tenant, spec.tenant_weight, now);
  const bool starts =
      streams_.MayTake(spec.tenant) && order_.WaitingOf({spec.tenant, spec.tenant_weight, 0}) == 0;
  if (starts || !places_.IsFullFor(spec.tenant)) return "";
  const int64_t own = places_.HeldBy(spec.tenant);
  if (own == static_cast<int64_t>(queue_.size())) {
    return absl::StrCat("The request queue is full (", config_.max_queued,
                        " waiting). Retry later.");
  }
  return absl::StrCat("Too many requests of this tenant wait (", own, ", of ", queue_.size(),
                      " in the request queue; its share is ", places_.ShareOf(spec.tenant),
                      "). Retry later.");
}

void ClientRequests::Add(ClientRequest request) {
  request.asked = request.spec;
  const RequestId id = request.spec->id.First();
  const RequestHead& spec = *request.asked;
  none_may_until_us_ = 0;
  request.number = ++last_number_;
  Count(request, 1);
  queue_.emplace(request.number, id);
  streams_.Ask(spec.tenant, spec.tenant_weight, request.arrived_us);
  places_.Ask(spec.tenant, spec.tenant_weight, request.arrived_us);
  places_.Take(spec.tenant);
  const TimeUs latest_us = spec.ttft_goal_us > 0 ? request.arrived_us + spec.ttft_goal_us : kNever;
  order_.Add(OwnerOf(request), {request.number, id}, latest_us);
  requests_.emplace(id, std::move(request));
}

ClientRequest* ClientRequests::Admit(TimeUs now) {
  if (running_ >= config_.max_streams || queue_.empty() || now < none_may_until_us_) return nullptr;
  streams_.Expire(now);
  const std::optional<QueueKey> first =
      order_.First(now, [this](std::string_view tenant) { return streams_.MayTake(tenant); });
  if (!first.has_value()) {
    none_may_until_us_ = now + kLookAgainUs;
    return nullptr;
  }
  ClientRequest& request = requests_.at(first->second);
  order_.Serve(OwnerOf(request), *first, PromptTokens(*request.asked));
  LeaveQueue(request);
  streams_.Take(request.asked->tenant);
  ++running_;
  SetState(request, State::kSubmitted);
  request.submitted_us = now;
  request.times.admission_us = now - request.arrived_us;
  return &request;
}

void ClientRequests::LeaveQueue(const ClientRequest& request) {
  queue_.erase(request.number);
  places_.GiveBack(request.asked->tenant);
}

void ClientRequests::NoteDelivered(const ClientRequest& request) {
  if (request.delivered % kChargedAtOnce != 0) return;
  order_.Charge(OwnerOf(request), kChargedAtOnce * kAnswerTokenCost);
}

void ClientRequests::Erase(ClientRequest& request, TimeUs now) {
  const RequestId id = request.spec->id.First();
  none_may_until_us_ = 0;
  if (request.state == State::kQueued) {
    order_.Remove(OwnerOf(request), {request.number, id});
    LeaveQueue(request);
  } else {
    --running_;
    streams_.GiveBack(request.asked->tenant);
    order_.Charge(OwnerOf(request), request.delivered % kChargedAtOnce * kAnswerTokenCost);
    recent_ends_.push_back(now);
    if (recent_ends_.size() > kRecentEnds) recent_ends_.pop_front();
  }
  Count(request, -1);
  requests_.erase(id);
}

TimeUs ClientRequests::RetryAfter(TimeUs now) const {
  TimeUs wait = config_.max_retry_after_us;
  if (recent_ends_.size() >= 2) {
    const TimeUs span = now - recent_ends_.front();
    const auto ends = static_cast<int64_t>(recent_ends_.size());
    wait = span / ends * (1 + static_cast<int64_t>(queue_.size()));
  } else if (recent_ends_.empty()) {
    wait = config_.min_retry_after_us;
  }
  return std::clamp(wait, config_.min_retry_after_us, config_.max_retry_after_us);
}

ClientRequest* ClientRequests::FindAny(RequestId id) {
  const auto it = requests_.find(id.First());
  return it == requests_.end() ? nullptr : &it->second;
}

ClientRequest* ClientRequests::Find(RequestId id) {
  ClientRequest* request = FindAny(id);
  return request != nullptr && request->spec->id == id ? request : nullptr;
}

ClientRequest* ClientRequests::FindStream(RequestId id, Epoch epoch) {
  ClientRequest* request = Find(id);
  if (request == nullptr || !request->HasStream()) return nullptr;
  const bool stale = request->epoch != epoch && !SKEIN_PLANT(token_epoch_ignored);
  return stale ? nullptr : request;
}

std::vector<RequestId> ClientRequests::InCell(size_t cell) const {
  std::vector<RequestId> ids;
  for (const auto& [first, request] : requests_) {
    if (request.cell == cell) ids.push_back(request.spec->id);
  }
  return ids;
}

TimeUs ClientRequests::OldestQueuedUs() const {
  return queue_.empty() ? kNever : requests_.at(queue_.begin()->second).arrived_us;
}

std::string_view ClientRequests::StateOf(RequestId id) const {
  const auto it = requests_.find(id.First());
  if (it == requests_.end()) return "";
  switch (it->second.state) {
    case State::kQueued:
      return "queued";
    case State::kSubmitted:
    case State::kAhead:
      return "submitted";
    case State::kStreaming:
    case State::kStreamOver:
      return "placed";
    case State::kResuming:
      return "resuming";
  }
  return "";
}

absl::Status ClientRequests::CheckInvariants() const {
  int64_t running = 0, streaming = 0;
  for (const auto& [id, request] : requests_) {
    running += request.state != State::kQueued;
    streaming += request.IsPlaced();
    const bool may_deliver = request.IsPlaced() || request.state == State::kResuming;
    if (request.DeliveredNow() > 0 && !may_deliver) {
      return absl::InternalError(
          absl::StrCat("RouterCore 2: ", ToString(id), " has tokens before it is placed"));
    }
  }
  const auto queued = static_cast<int64_t>(requests_.size()) - running;
  if (running != running_ || running > config_.max_streams || running != streams_.held() ||
      queued > 2 * config_.max_queued || queued != static_cast<int64_t>(queue_.size()) ||
      queued != places_.held() || queued != static_cast<int64_t>(order_.size())) {
    return absl::InternalError(absl::StrCat("RouterCore 1: ", running, " running, ", queued,
                                            " queued: miscounted or above a limit"));
  }
  for (const absl::Status& status :
       {order_.CheckInvariants(), streams_.CheckInvariants(), places_.CheckInvariants()}) {
    if (!status.ok()) return status;
  }
  for (const auto& [number, id] : queue_) {
    const auto it = requests_.find(id);
    const bool queues =
        it != requests_.end() && it->second.state == State::kQueued && it->second.number == number;
    if (queues && !streams_.MayTake(it->second.asked->tenant)) continue;
    return absl::InternalError(
        absl::StrCat("RouterCore 1: ", ToString(id),
                     queues ? " is queued, but may have a stream" : " is not queued"));
  }
  if (queued != snapshot_.queued || streaming != snapshot_.streaming ||
      running != snapshot_.submitted + snapshot_.streaming) {
    return absl::InternalError(absl::StrCat("RouterCore 4: counted ", snapshot_.queued, " queued, ",
                                            snapshot_.submitted, " submitted, ",
                                            snapshot_.streaming, " streaming"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
