#include "scheduler/router/client_requests.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/plant.h"

namespace skein::scheduler {
namespace {

constexpr size_t kRecentEnds = 64;

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

bool ClientRequests::IsFull() const {
  return running_ >= config_.max_streams &&
         static_cast<int64_t>(queue_.size()) >= config_.max_queued;
}

void ClientRequests::Add(ClientRequest request) {
  request.asked = request.spec;
  const RequestId id = request.spec->id.First();
  request.number = ++last_number_;
  Count(request, 1);
  queue_.emplace(request.number, id);
  requests_.emplace(id, std::move(request));
}

ClientRequest* ClientRequests::Admit(TimeUs now) {
  if (running_ >= config_.max_streams || queue_.empty()) return nullptr;
  ClientRequest& request = requests_.at(queue_.begin()->second);
  queue_.erase(queue_.begin());
  ++running_;
  SetState(request, State::kSubmitted);
  request.submitted_us = now;
  request.times.admission_us = now - request.arrived_us;
  return &request;
}

void ClientRequests::Erase(ClientRequest& request, TimeUs now) {
  const RequestId id = request.spec->id.First();
  if (request.state == State::kQueued) {
    queue_.erase(request.number);
  } else {
    --running_;
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
  if (running != running_ || running > config_.max_streams || queued > config_.max_queued ||
      queued != static_cast<int64_t>(queue_.size()) ||
      (queued > 0 && running < config_.max_streams)) {
    return absl::InternalError(absl::StrCat("RouterCore 1: ", running, " running, ", queued,
                                            " queued: miscounted or above a limit"));
  }
  for (const auto& [number, id] : queue_) {
    const auto it = requests_.find(id);
    if (it != requests_.end() && it->second.state == State::kQueued && it->second.number == number)
      continue;
    return absl::InternalError(absl::StrCat("RouterCore 1: ", ToString(id), " is not queued"));
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
