#include "scheduler/kv/staging_buffer_queue.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

StagingBufferQueue::StagingBufferQueue(int buffers, const StagingTimes& times)
    : times_(times), buffers_(static_cast<size_t>(buffers)) {
  SKEIN_CHECK(buffers > 0);
}

StagingBufferQueue::Buffer* StagingBufferQueue::Find(const StagingRequest& request,
                                                     InstanceId writer) {
  for (Buffer& buffer : buffers_) {
    if (buffer.owner == request && buffer.writer == writer) return &buffer;
  }
  return nullptr;
}

bool StagingBufferQueue::HasBuffer(const StagingRequest& request) const {
  return std::any_of(buffers_.begin(), buffers_.end(),
                     [&](const Buffer& buffer) { return buffer.owner == request; });
}

StagingBufferQueue::Request* StagingBufferQueue::FindRequest(const StagingRequest& request) {
  const auto place = order_.find(request);
  return place == order_.end() ? nullptr : &requests_.at(place->second).second;
}

void StagingBufferQueue::Enqueue(const StagingRequest& request, InstanceId writer, TimeUs now,
                                 uint64_t acquisition) {
  const auto [known, is_new] = order_.try_emplace(request, next_place_);
  if (is_new) requests_[next_place_++].first = request;
  const uint64_t place = known->second;
  std::vector<Waiting>& waiting = requests_.at(place).second.waiting;
  const auto it = std::find_if(waiting.begin(), waiting.end(),
                               [writer](const Waiting& w) { return w.writer == writer; });
  if (it == waiting.end()) {
    waiting.push_back({writer, acquisition});
    places_waiting_.insert(place);
    ++waiting_;
  } else {
    it->acquisition = std::max(it->acquisition, acquisition);
  }
  acquisitions_.Set({place, writer}, now + times_.acquire_lease_us);
}

void StagingBufferQueue::EraseWaiting(uint64_t place, InstanceId writer, uint64_t acquisition) {
  std::vector<Waiting>& waiting = requests_.at(place).second.waiting;
  const size_t erased = std::erase_if(waiting, [&](const Waiting& w) {
    return w.writer == writer && w.acquisition <= acquisition;
  });
  if (erased == 0) return;
  acquisitions_.Remove({place, writer});
  waiting_ -= static_cast<int64_t>(erased);
  if (waiting.empty()) places_waiting_.erase(place);
}

std::optional<int> StagingBufferQueue::Acquire(const StagingRequest& request, InstanceId writer,
                                               TimeUs now, uint64_t acquisition) {
  Expire(now);
  if (const Request* known = FindRequest(request); known != nullptr) {
    if (known->ended) return std::nullopt;
    const auto finished = known->finished.find(writer);
    if (finished != known->finished.end() && acquisition <= finished->second) return std::nullopt;
  }
  if (Find(request, writer) == nullptr) Enqueue(request, writer, now, acquisition);
  Assign(now);
  Buffer* buffer = Find(request, writer);
  if (buffer == nullptr) return std::nullopt;
  buffer->acquisition = std::max(buffer->acquisition, acquisition);
  buffer->free_at = now + times_.lease_us;
  return static_cast<int>(buffer - buffers_.data());
}

bool StagingBufferQueue::Renew(const StagingRequest& request, InstanceId writer, TimeUs now) {
  Expire(now);
  Assign(now);
  Buffer* buffer = Find(request, writer);
  if (buffer == nullptr) return false;
  buffer->free_at = now + times_.lease_us;
  return true;
}

void StagingBufferQueue::Finished(const StagingRequest& request, InstanceId writer, TimeUs now,
                                  uint64_t acquisition) {
  Expire(now);
  if (Request* known = FindRequest(request); known != nullptr) {
    EraseWaiting(order_.at(request), writer, acquisition);
    if (acquisition != kEveryAcquisition) {
      uint64_t& finished = known->finished[writer];
      finished = std::max(finished, acquisition);
    }
  }
  Buffer* buffer = Find(request, writer);
  if (buffer != nullptr && buffer->acquisition <= acquisition) Release(buffer, now);
  Assign(now);
}

// The request keeps the staging buffer unless it has ended.
void StagingBufferQueue::Release(Buffer* buffer, TimeUs now) {
  buffer->writer.reset();
  buffer->free_at = now + times_.hold_us;
  const Request* owner = FindRequest(*buffer->owner);
  if (owner == nullptr || owner->ended) Free(buffer);
}

void StagingBufferQueue::Free(Buffer* buffer) {
  const StagingRequest owner = *buffer->owner;
  *buffer = {};
  ForgetIfEnded(owner);
}

void StagingBufferQueue::End(const StagingRequest& request, TimeUs now) {
  Expire(now);
  const auto known = order_.find(request);
  if (known == order_.end()) return;
  const uint64_t place = known->second;
  requests_.at(place).second.ended = true;
  for (const Waiting& waiting : std::vector<Waiting>(requests_.at(place).second.waiting)) {
    EraseWaiting(place, waiting.writer, kEveryAcquisition);
  }
  for (Buffer& buffer : buffers_) {
    if (buffer.owner == request && !buffer.writer.has_value()) buffer = {};
  }
  ForgetIfEnded(request);
  Assign(now);
}

void StagingBufferQueue::ForgetIfEnded(const StagingRequest& request) {
  const auto known = order_.find(request);
  if (known == order_.end() || !requests_.at(known->second).second.ended) return;
  if (HasBuffer(request)) return;
  requests_.erase(known->second);
  order_.erase(known);
}

void StagingBufferQueue::Expire(TimeUs now) {
  while (const auto late = acquisitions_.TakeDue(now)) {
    EraseWaiting(late->first, late->second, kEveryAcquisition);
  }
  for (Buffer& buffer : buffers_) {
    if (!buffer.owner.has_value() || buffer.free_at > now) continue;
    if (buffer.writer.has_value()) {
      Release(&buffer, now);
    } else {
      Free(&buffer);
    }
  }
}

// Gives the buffer to the request's first waiting writer.
void StagingBufferQueue::GiveTo(Buffer* buffer, uint64_t place, TimeUs now) {
  const auto& [owner, request] = requests_.at(place);
  const Waiting first = request.waiting.front();
  buffer->owner = owner;
  buffer->writer = first.writer;
  buffer->acquisition = first.acquisition;
  buffer->free_at = now + times_.lease_us;
  EraseWaiting(place, first.writer, kEveryAcquisition);
}

StagingBufferQueue::Buffer* StagingBufferQueue::FirstFree() {
  const auto free = std::find_if(buffers_.begin(), buffers_.end(),
                                 [](const Buffer& b) { return !b.owner.has_value(); });
  return free == buffers_.end() ? nullptr : &*free;
}

void StagingBufferQueue::Assign(TimeUs now) {
  for (Buffer& buffer : buffers_) {
    if (!buffer.owner.has_value() || buffer.writer.has_value()) continue;
    const auto own = order_.find(*buffer.owner);
    if (own != order_.end() && places_waiting_.contains(own->second)) {
      GiveTo(&buffer, own->second, now);
    }
  }
  while (!places_waiting_.empty()) {
    Buffer* const free = FirstFree();
    if (free == nullptr) break;
    GiveTo(free, *places_waiting_.begin(), now);
  }
}

void StagingBufferQueue::Tick(TimeUs now) {
  Expire(now);
  Assign(now);
}

TimeUs StagingBufferQueue::NextDeadline() const {
  TimeUs next = kNever;
  for (const Buffer& buffer : buffers_) next = std::min(next, buffer.free_at);
  return std::min(next, acquisitions_.Next());
}

std::optional<StagingRequest> StagingBufferQueue::OwnerOf(int buffer) const {
  return buffers_[static_cast<size_t>(buffer)].owner;
}

std::optional<InstanceId> StagingBufferQueue::WriterOf(int buffer) const {
  return buffers_[static_cast<size_t>(buffer)].writer;
}

std::optional<int> StagingBufferQueue::BufferOf(const StagingRequest& request,
                                                InstanceId writer) const {
  for (int i = 0; i < buffers(); ++i) {
    if (OwnerOf(i) == request && WriterOf(i) == writer) return i;
  }
  return std::nullopt;
}

int StagingBufferQueue::free() const {
  return static_cast<int>(std::count_if(buffers_.begin(), buffers_.end(),
                                        [](const Buffer& b) { return !b.owner.has_value(); }));
}

absl::Status StagingBufferQueue::CheckInvariants() const {
  std::set<std::pair<StagingRequest, InstanceId>> writers;
  for (const Buffer& buffer : buffers_) {
    if (buffer.writer.has_value() && !buffer.owner.has_value()) {
      return absl::InternalError("1: a staging buffer has a writer but no request");
    }
    if (!buffer.owner.has_value()) continue;
    const auto place = order_.find(*buffer.owner);
    if (place == order_.end())
      return absl::InternalError("4: a staging buffer belongs to an unknown request");
    const Request& owner = requests_.at(place->second).second;
    if (!buffer.writer.has_value() && !owner.waiting.empty()) {
      return absl::InternalError("3: a writer waits while its request has a free staging buffer");
    }
    if (buffer.writer.has_value() && !writers.insert({*buffer.owner, *buffer.writer}).second) {
      return absl::InternalError("2: a writer has two staging buffers");
    }
  }
  if (free() > 0 && waiting() > 0)
    return absl::InternalError("3: a staging buffer is free while a writer waits");
  int64_t waits = 0;
  for (const auto& [place, entry] : requests_) {
    const auto& [request, state] = entry;
    waits += static_cast<int64_t>(state.waiting.size());
    if (state.waiting.empty() == places_waiting_.contains(place)) {
      return absl::InternalError("3: a request with waiting writers is not in the wait list");
    }
    for (const Waiting& w : state.waiting) {
      if (!writers.contains({request, w.writer})) continue;
      return absl::InternalError("2: a writer waits although it has a staging buffer");
    }
    if (state.ended && !HasBuffer(request)) {
      return absl::InternalError("4: an ended request is still in the order");
    }
  }
  if (waits != waiting_) {
    return absl::InternalError(
        absl::StrCat("3: ", waits, " writers wait, but the count is ", waiting_));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
