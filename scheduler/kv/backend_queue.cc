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
  const auto [known, is_new] = order_.try_emplace(request, next_place_);
  if (is_new) requests_[next_place_++].first = request;
  const uint64_t place = known->second;
  std::vector<Waiting>& waiting = requests_.at(place).second.waiting;
  const auto it = std::find_if(waiting.begin(), waiting.end(),
                               [writer](const Waiting& w) { return w.writer == writer; });
  if (it == waiting.end()) {
    waiting.push_back({writer, ask});
    places_waiting_.insert(place);
    ++waiting_;
  } else {
    it->ask = std::max(it->ask, ask);
  }
  wishes_.Set({place, writer}, now + times_.ask_lease_us);
}

void BackendQueue::EraseWish(uint64_t place, InstanceId writer, uint64_t ask) {
  std::vector<Waiting>& waiting = requests_.at(place).second.waiting;
  const size_t erased =
      std::erase_if(waiting, [&](const Waiting& w) { return w.writer == writer && w.ask <= ask; });
  if (erased == 0) return;
  wishes_.Remove({place, writer});
  waiting_ -= static_cast<int64_t>(erased);
  if (waiting.empty()) places_waiting_.erase(place);
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
    EraseWish(order_.at(request), writer, ask);
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
  if (owner == nullptr || owner->ended) Free(backend);
}

void BackendQueue::Free(Backend* backend) {
  const BackendRequest owner = *backend->owner;
  *backend = {};
  ForgetIfEnded(owner);
}

void BackendQueue::End(const BackendRequest& request, TimeUs now) {
  Expire(now);
  const auto known = order_.find(request);
  if (known == order_.end()) return;
  const uint64_t place = known->second;
  requests_.at(place).second.ended = true;
  for (const Waiting& waiting : std::vector<Waiting>(requests_.at(place).second.waiting)) {
    EraseWish(place, waiting.writer, kEveryAsk);
  }
  for (Backend& backend : backends_) {
    if (backend.owner == request && !backend.writer.has_value()) backend = {};
  }
  ForgetIfEnded(request);
  Assign(now);
}

void BackendQueue::ForgetIfEnded(const BackendRequest& request) {
  const auto known = order_.find(request);
  if (known == order_.end() || !requests_.at(known->second).second.ended) return;
  if (HasBackend(request)) return;
  requests_.erase(known->second);
  order_.erase(known);
}

void BackendQueue::Expire(TimeUs now) {
  while (const auto wish = wishes_.TakeDue(now)) EraseWish(wish->first, wish->second, kEveryAsk);
  for (Backend& backend : backends_) {
    if (!backend.owner.has_value() || backend.free_at > now) continue;
    if (backend.writer.has_value()) {
      Release(&backend, now);
    } else {
      Free(&backend);
    }
  }
}

// To the first of the request's writers that wait.
void BackendQueue::GiveTo(Backend* backend, uint64_t place, TimeUs now) {
  const auto& [owner, request] = requests_.at(place);
  const Waiting first = request.waiting.front();
  backend->owner = owner;
  backend->writer = first.writer;
  backend->ask = first.ask;
  // Until it asks again, and hears of it, it does not write: no grace is needed. But it may have
  // been told already, in an answer that was lost.
  backend->free_at = now + times_.lease_us + times_.grace_us;
  given_.push_back({owner, first.writer});
  EraseWish(place, first.writer, kEveryAsk);
}

BackendQueue::Backend* BackendQueue::FirstFree() {
  const auto free = std::find_if(backends_.begin(), backends_.end(),
                                 [](const Backend& b) { return !b.owner.has_value(); });
  return free == backends_.end() ? nullptr : &*free;
}

void BackendQueue::Assign(TimeUs now) {
  for (Backend& backend : backends_) {
    if (!backend.owner.has_value() || backend.writer.has_value()) continue;
    const auto own = order_.find(*backend.owner);
    if (own != order_.end() && places_waiting_.contains(own->second)) {
      GiveTo(&backend, own->second, now);
    }
  }
  while (!places_waiting_.empty()) {
    Backend* const free = FirstFree();
    if (free == nullptr) break;
    GiveTo(free, *places_waiting_.begin(), now);
  }
}

void BackendQueue::Tick(TimeUs now) {
  Expire(now);
  Assign(now);
}

TimeUs BackendQueue::NextDeadline() const {
  TimeUs next = kNever;
  for (const Backend& backend : backends_) next = std::min(next, backend.free_at);
  return std::min(next, wishes_.Next());
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
  int64_t waits = 0;
  for (const auto& [place, entry] : requests_) {
    const auto& [request, state] = entry;
    waits += static_cast<int64_t>(state.waiting.size());
    if (state.waiting.empty() == places_waiting_.contains(place)) {
      return absl::InternalError("3: a request whose writers wait is not known to wait");
    }
    for (const Waiting& w : state.waiting) {
      if (!writers.contains({request, w.writer})) continue;
      return absl::InternalError("2: a writer waits that has a backend");
    }
    if (state.ended && !HasBackend(request)) {
      return absl::InternalError("4: a request that ended is in the order");
    }
  }
  if (waits != waiting_) {
    return absl::InternalError(absl::StrCat("3: ", waits, " writers wait, counted ", waiting_));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
