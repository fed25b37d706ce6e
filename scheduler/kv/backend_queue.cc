#include "scheduler/kv/backend_queue.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/base/check.h"

namespace skein::scheduler {

BackendQueue::BackendQueue(int backends, const BackendTimes& times)
    : times_(times), backends_(static_cast<size_t>(backends)) {
  SKEIN_INVARIANT(backends > 0);
}

BackendQueue::Backend* BackendQueue::Find(const BackendRequest& request, InstanceId writer) {
  for (Backend& backend : backends_) {
    if (backend.owner == request && backend.writer == writer) return &backend;
  }
  return nullptr;
}

bool BackendQueue::HasBackend(const BackendRequest& request) const {
  return std::any_of(backends_.begin(), backends_.end(),
                     [&](const Backend& backend) { return backend.owner == request; });
}

BackendQueue::Request* BackendQueue::FindRequest(const BackendRequest& request) {
  const auto place = order_.find(request);
  return place == order_.end() ? nullptr : &requests_.at(place->second).second;
}

void BackendQueue::Wish(const BackendRequest& request, InstanceId writer, TimeUs now,
                        uint64_t ask) {
  const auto [place, is_new] = order_.try_emplace(request, next_place_);
  if (is_new) requests_[next_place_++].first = request;
  std::vector<Waiting>& waiting = requests_.at(place->second).second.waiting;
  const auto it = std::find_if(waiting.begin(), waiting.end(),
                               [writer](const Waiting& w) { return w.writer == writer; });
  if (it == waiting.end()) {
    waiting.push_back({writer, now + times_.ask_lease_us, ask});
  } else {
    it->forget_at = now + times_.ask_lease_us;
    it->ask = std::max(it->ask, ask);
  }
}

std::optional<int> BackendQueue::Ask(const BackendRequest& request, InstanceId writer, TimeUs now,
                                     uint64_t ask) {
  Expire(now);
  if (const Request* known = FindRequest(request); known != nullptr) {
    if (known->ended) return std::nullopt;
    const auto finished = known->finished.find(writer);
    if (finished != known->finished.end() && ask <= finished->second) return std::nullopt;
  }
  if (Find(request, writer) == nullptr) Wish(request, writer, now, ask);
  Assign(now);
  Backend* backend = Find(request, writer);
  if (backend == nullptr) return std::nullopt;
  backend->ask = std::max(backend->ask, ask);
  backend->free_at = now + times_.lease_us + times_.grace_us;
  return static_cast<int>(backend - backends_.data());
}

bool BackendQueue::Renew(const BackendRequest& request, InstanceId writer, TimeUs now) {
  Expire(now);
  Assign(now);
  Backend* backend = Find(request, writer);
  if (backend == nullptr) return false;
  backend->free_at = now + times_.lease_us + times_.grace_us;
  return true;
}

void BackendQueue::Finished(const BackendRequest& request, InstanceId writer, TimeUs now,
                            uint64_t ask) {
  Expire(now);
  if (Request* known = FindRequest(request); known != nullptr) {
    std::erase_if(known->waiting,
                  [&](const Waiting& w) { return w.writer == writer && w.ask <= ask; });
    if (ask != kEveryAsk) {
      uint64_t& finished = known->finished[writer];
      finished = std::max(finished, ask);
    }
  }
  Backend* backend = Find(request, writer);
  if (backend != nullptr && backend->ask <= ask) Release(backend, now);
  Assign(now);
}

// The request keeps the backend, unless it has ended.
void BackendQueue::Release(Backend* backend, TimeUs now) {
  backend->writer.reset();
  backend->free_at = now + times_.hold_us;
  const Request* owner = FindRequest(*backend->owner);
  if (owner == nullptr || owner->ended) *backend = {};
}

void BackendQueue::End(const BackendRequest& request, TimeUs now) {
  Expire(now);
  Request* known = FindRequest(request);
  if (known == nullptr) return;
  known->ended = true;
  known->waiting.clear();
  for (Backend& backend : backends_) {
    if (backend.owner == request && !backend.writer.has_value()) backend = {};
  }
  ForgetEnded();
  Assign(now);
}

void BackendQueue::ForgetEnded() {
  std::erase_if(requests_, [this](const auto& entry) {
    const auto& [request, state] = entry.second;
    if (!state.ended || HasBackend(request)) return false;
    order_.erase(request);
    return true;
  });
}

void BackendQueue::Expire(TimeUs now) {
  for (auto& [place, entry] : requests_) {
    std::erase_if(entry.second.waiting, [now](const Waiting& w) { return w.forget_at <= now; });
  }
  for (Backend& backend : backends_) {
    if (!backend.owner.has_value() || backend.free_at > now) continue;
    if (backend.writer.has_value()) {
      Release(&backend, now);
    } else {
      backend = {};
    }
  }
  ForgetEnded();
}

void BackendQueue::GiveTo(Backend* backend, const BackendRequest& owner, Request* request,
                          TimeUs now) {
  const Waiting first = request->waiting.front();
  request->waiting.erase(request->waiting.begin());
  backend->owner = owner;
  backend->writer = first.writer;
  backend->ask = first.ask;
  // Until it asks again, and hears of it, it does not write: no grace is needed. But it may have
  // been told already, in an answer that was lost.
  backend->free_at = now + times_.lease_us + times_.grace_us;
}

void BackendQueue::Assign(TimeUs now) {
  for (Backend& backend : backends_) {
    if (!backend.owner.has_value() || backend.writer.has_value()) continue;
    Request* own = FindRequest(*backend.owner);
    if (own != nullptr && !own->waiting.empty()) GiveTo(&backend, *backend.owner, own, now);
  }
  for (auto& [place, entry] : requests_) {
    for (Backend& backend : backends_) {
      if (entry.second.waiting.empty()) break;
      if (!backend.owner.has_value()) GiveTo(&backend, entry.first, &entry.second, now);
    }
  }
}

void BackendQueue::Tick(TimeUs now) {
  Expire(now);
  Assign(now);
}

TimeUs BackendQueue::NextDeadline() const {
  TimeUs next = kNever;
  for (const Backend& backend : backends_) next = std::min(next, backend.free_at);
  for (const auto& [place, entry] : requests_) {
    for (const Waiting& waiting : entry.second.waiting) next = std::min(next, waiting.forget_at);
  }
  return next;
}

std::optional<BackendRequest> BackendQueue::OwnerOf(int backend) const {
  return backends_[static_cast<size_t>(backend)].owner;
}

std::optional<InstanceId> BackendQueue::WriterOf(int backend) const {
  return backends_[static_cast<size_t>(backend)].writer;
}

std::optional<int> BackendQueue::BackendOf(const BackendRequest& request, InstanceId writer) const {
  for (int i = 0; i < backends(); ++i) {
    if (OwnerOf(i) == request && WriterOf(i) == writer) return i;
  }
  return std::nullopt;
}

int BackendQueue::free() const {
  return static_cast<int>(std::count_if(backends_.begin(), backends_.end(),
                                        [](const Backend& b) { return !b.owner.has_value(); }));
}

int64_t BackendQueue::waiting() const {
  int64_t count = 0;
  for (const auto& [place, entry] : requests_) {
    count += static_cast<int64_t>(entry.second.waiting.size());
  }
  return count;
}

absl::Status BackendQueue::CheckInvariants() const {
  std::set<std::pair<BackendRequest, InstanceId>> writers;
  for (const Backend& backend : backends_) {
    if (backend.writer.has_value() && !backend.owner.has_value()) {
      return absl::InternalError("1: a backend with a writer and no request");
    }
    if (!backend.owner.has_value()) continue;
    const auto place = order_.find(*backend.owner);
    if (place == order_.end()) return absl::InternalError("4: a backend of an unknown request");
    const Request& owner = requests_.at(place->second).second;
    if (!backend.writer.has_value() && !owner.waiting.empty()) {
      return absl::InternalError("3: a writer waits for a backend that its request has");
    }
    if (backend.writer.has_value() && !writers.insert({*backend.owner, *backend.writer}).second) {
      return absl::InternalError("2: a writer with two backends");
    }
  }
  if (free() > 0 && waiting() > 0) return absl::InternalError("3: a backend is free, one waits");
  for (const auto& [place, entry] : requests_) {
    const auto& [request, state] = entry;
    for (const Waiting& w : state.waiting) {
      if (!writers.contains({request, w.writer})) continue;
      return absl::InternalError("2: a writer waits that has a backend");
    }
    if (state.ended && !HasBackend(request)) {
      return absl::InternalError("4: a request that ended is in the order");
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
