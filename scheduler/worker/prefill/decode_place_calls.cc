#include "scheduler/worker/prefill/decode_place_calls.h"

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

void DecodePlaceCalls::SetConnected(bool connected, TimeUs now) {
  if (connected == connected_) return;
  connected_ = connected;
  for (auto it = entries_.begin(); it != entries_.end();) {
    Entry& entry = it->second;
    if (entry.state == State::kSuspended) {  // its call went with the stream
      it = entries_.erase(it);
      continue;
    }
    if (entry.state != State::kRetrying) Call(entry, now);
    ++it;
  }
}

void DecodePlaceCalls::Call(Entry& entry, TimeUs now) {
  const RequestId id = entry.request.id;
  if (connected_) {
    entry.state = State::kCalled;
    timers_.Remove(id);
    call_(entry.request);
  } else {
    entry.state = State::kParked;
    timers_.Set(id, now + config_.give_up_us);
  }
}

void DecodePlaceCalls::Ask(const PlaceDecodeRequest& request, TimeUs now) {
  const auto [it, added] = entries_.try_emplace(request.id, Entry{request});
  Entry& entry = it->second;
  const bool on_stream =
      !added && (entry.state == State::kSuspended || entry.state == State::kCalled);
  if (on_stream && entry.request.epoch == request.epoch) {
    entry.state = State::kCalled;
    return;
  }
  entry.request = request;
  Call(entry, now);
}

void DecodePlaceCalls::Suspend(RequestId id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  if (it->second.state == State::kCalled) it->second.state = State::kSuspended;
  if (it->second.state != State::kSuspended) Forget(id);
}

void DecodePlaceCalls::Forget(RequestId id) {
  entries_.erase(id);
  timers_.Remove(id);
}

bool DecodePlaceCalls::Answered(RequestId id, Epoch epoch, const absl::Status& status, TimeUs now) {
  const auto it = entries_.find(id);
  if (it == entries_.end() || it->second.request.epoch != epoch) return false;
  Entry& entry = it->second;
  if (entry.state != State::kCalled && entry.state != State::kSuspended) return false;
  if (entry.state == State::kCalled && absl::IsResourceExhausted(status)) {
    entry.state = State::kRetrying;
    timers_.Set(id, now + config_.retry_us);
  } else {
    Forget(id);
  }
  return true;
}

std::vector<RequestId> DecodePlaceCalls::RunTimers(TimeUs now) {
  std::vector<RequestId> given_up;
  while (const std::optional<RequestId> id = timers_.TakeDue(now)) {
    Entry& entry = entries_.at(*id);
    if (entry.state == State::kRetrying) {
      Call(entry, now);
    } else {
      given_up.push_back(*id);
      Forget(*id);
    }
  }
  return given_up;
}

absl::Status DecodePlaceCalls::CheckInvariants() const {
  for (const auto& [id, entry] : entries_) {
    const bool on_stream = entry.state == State::kCalled || entry.state == State::kSuspended;
    if ((on_stream && !connected_) || (entry.state == State::kParked && connected_)) {
      return absl::InternalError(
          absl::StrCat("DecodePlaceCalls: ", ToString(id),
                       connected_ ? " is parked although a stream" : " has a call on a stream",
                       connected_ ? " is open" : " that is gone"));
    }
    if (on_stream != (timers_.Of(id) == kNever)) {
      return absl::InternalError(
          absl::StrCat("DecodePlaceCalls: ", ToString(id),
                       on_stream ? " has a timer and a call" : " has neither timer nor call"));
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
