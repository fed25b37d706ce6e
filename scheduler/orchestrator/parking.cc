// Admission, and the wait for an instance that takes the request.
//
// A model's requests are admitted as long as its instances, prefill and decode, can hold one more
// (WorkerIdentity::max_requests). What is admitted and finds no prefill instance that takes it now
// is parked: it waits here, under its deadline, and is planned when one reports, has room again or
// comes. Parked requests are planned in the order of their submission; one that needs an instance
// of its own (a large memory) does not hold up the others.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/orchestrator_impl.h"

namespace skein::scheduler {

// RESOURCE_EXHAUSTED: nothing of the request was begun.
absl::Status OrchestratorCore::Impl::HasCapacity(const std::string& model) const {
  if (static_cast<int64_t>(requests_.size()) >= config_.max_requests) {
    return absl::ResourceExhaustedError(absl::StrCat("The cluster's request limit is reached (",
                                                     config_.max_requests, "). Retry later."));
  }
  const PoolCounts& prefill = registry_.Counts(model, Role::kPrefill);
  const PoolCounts& decode = registry_.Counts(model, Role::kDecode);
  if (prefill.unlimited + decode.unlimited > 0) return absl::OkStatus();
  const int64_t limit = prefill.request_limit + decode.request_limit;
  // Of those alive, held where nothing new is placed.
  const int64_t leaving = prefill.placed_not_serving + decode.placed_not_serving;
  if (limit == 0 || requests_.CountOf(model) < limit + leaving) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("The request limit of model '", model,
                                                   "' is reached (", limit,
                                                   ", what its instances hold). Retry later."));
}

bool OrchestratorCore::Impl::SomeServe(const std::string& model) const {
  return registry_.Counts(model, Role::kPrefill).serving > 0;
}

bool OrchestratorCore::Impl::SomeTake(const std::string& model) const {
  return registry_.Counts(model, Role::kPrefill).taking > 0;
}

// One that serves and was not asked now: it has no room, or others are tried first.
bool OrchestratorCore::Impl::SomeMayTakeLater(const Request& request) const {
  const auto& pool = registry_.Pool(request.spec->model, Role::kPrefill);
  return std::any_of(pool.begin(), pool.end(), [&](const Instance* one) {
    const bool asked = one->TakesAssigns() && request.tried_prefill.count(one->id) == 0;
    return one->Serves() && !asked;
  });
}

// Requests of its model are parked: a new one waits behind them.
bool OrchestratorCore::Impl::MustPark(const Request& request) const {
  return request.state != State::kParked && parked_.count(request.spec->model) > 0;
}

void OrchestratorCore::Impl::Park(Request& request) {
  request.tried_prefill.clear();  // all were tried, or take nothing now
  if (request.state == State::kParked) return;
  newly_parked_.push_back(request.spec->id);
  const std::string& model = request.spec->model;
  Enter(request, State::kParked);
  parked_[model].emplace(request.number, request.spec->id);
  NoteRoom(model);
}

void OrchestratorCore::Impl::Unpark(const Request& request) {
  if (request.state != State::kParked) return;
  const auto line = parked_.find(request.spec->model);
  line->second.erase(request.number);
  if (line->second.empty()) parked_.erase(line);
}

void OrchestratorCore::Impl::PlanParked() {
  for (const std::string& model : std::exchange(roomy_, {})) {
    uint64_t last = 0;
    for (auto line = parked_.find(model); line != parked_.end(); line = parked_.find(model)) {
      if (SomeServe(model) && !SomeTake(model)) break;
      const auto next = line->second.upper_bound(last);
      if (next == line->second.end()) break;
      last = next->first;
      Plan(requests_.At(next->second));  // parks it again, fails it, or takes it out of the line
    }
  }
  for (const RequestId id : std::exchange(newly_parked_, {})) {
    Request* request = Find(id);
    const bool waits = request != nullptr && request->state == State::kParked;
    if (waits) Note(Degraded::kParked, *request);
  }
}

void OrchestratorCore::Impl::TakeFromInstance(Instance& instance, RequestId request) {
  instance.Take(request);
  NoteRoom(instance.identity.model);
}

}  // namespace skein::scheduler
