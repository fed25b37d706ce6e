#include "scheduler/orchestrator/requests/request_table.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler::orchestrator {

Request& RequestTable::Add(HeadPtr spec, TimeUs now, TimeUs deadline_us) {
  const uint64_t number = ++submitted_;
  Request& request = by_number_.try_emplace(by_number_.end(), number)->second;
  request.number = number;
  request.spec = std::move(spec);
  request.submitted_us = now;
  request.deadline_us = deadline_us;
  const bool is_new = by_id_.emplace(request.spec->id, &request).second;
  SKEIN_CHECK(is_new);
  of_router_[request.spec->id.router].insert(request.spec->id.serial);
  request.of_model = &of_model_[request.spec->model];
  ++in_state_[static_cast<size_t>(request.state)];
  ++(*request.of_model)[static_cast<size_t>(request.state)];
  ++priorities_[request.spec->model][request.spec->priority];
  TenantPlaces& tenants = TenantsOf(request.spec->model);
  tenants.Ask(request.spec->tenant, request.spec->tenant_weight, now);
  tenants.Take(request.spec->tenant);
  Arm(request);
  return request;
}

void RequestTable::Erase(const Request& request) {
  --in_state_[static_cast<size_t>(request.state)];
  --(*request.of_model)[static_cast<size_t>(request.state)];
  const auto priorities = priorities_.find(request.spec->model);
  const auto same = priorities->second.find(request.spec->priority);
  if (--same->second == 0) priorities->second.erase(same);
  if (priorities->second.empty()) priorities_.erase(priorities);
  TenantsOf(request.spec->model).GiveBack(request.spec->tenant);
  timers_.Remove(request.spec->id);
  by_id_.erase(request.spec->id);
  const auto router = of_router_.find(request.spec->id.router);
  router->second.erase(request.spec->id.serial);
  if (router->second.empty()) of_router_.erase(router);
  by_number_.erase(request.number);
}

Request* RequestTable::Find(RequestId id) {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

const Request* RequestTable::Find(RequestId id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

Request* RequestTable::Find(RequestId id, Epoch epoch) {
  Request* request = Find(id);
  return request != nullptr && request->epoch == epoch ? request : nullptr;
}

std::vector<RequestId> RequestTable::OfRouter(uint64_t router) const {
  std::vector<RequestId> ids;
  const auto serials = of_router_.find(router);
  if (serials == of_router_.end()) return ids;
  for (const uint64_t serial : serials->second) ids.push_back({router, serial});
  return ids;
}

Request& RequestTable::At(RequestId id) {
  Request* request = Find(id);
  SKEIN_CHECK(request != nullptr);
  return *request;
}

const Request& RequestTable::At(RequestId id) const {
  const Request* request = Find(id);
  SKEIN_CHECK(request != nullptr);
  return *request;
}

void RequestTable::Enter(Request& request, State state) {
  for (StateCounts* counts : {&in_state_, request.of_model}) {
    --(*counts)[static_cast<size_t>(request.state)];
    ++(*counts)[static_cast<size_t>(state)];
  }
  request.state = state;
}

void RequestTable::Arm(const Request& request) {
  timers_.Set(request.spec->id, request.NextTimer());
}

std::vector<RequestId> RequestTable::TakeDue(TimeUs now) {
  std::vector<RequestId> due;
  while (const std::optional<RequestId> id = timers_.TakeDue(now)) due.push_back(*id);
  return due;
}

int64_t RequestTable::CountOf(const std::string& model) const {
  const auto it = of_model_.find(model);
  return it == of_model_.end() ? 0
                               : std::accumulate(it->second.begin(), it->second.end(), int64_t{0});
}

int64_t RequestTable::CountOf(const std::string& model, State state) const {
  const auto it = of_model_.find(model);
  return it == of_model_.end() ? 0 : it->second[static_cast<size_t>(state)];
}

std::optional<int32_t> RequestTable::HighestPriorityOf(const std::string& model) const {
  const auto it = priorities_.find(model);
  if (it == priorities_.end()) return std::nullopt;
  return it->second.rbegin()->first;
}

int64_t RequestTable::CountFrom(const std::string& model, int32_t priority) const {
  const auto it = priorities_.find(model);
  if (it == priorities_.end()) return 0;
  return std::accumulate(it->second.lower_bound(priority), it->second.end(), int64_t{0},
                         [](int64_t sum, const auto& one) { return sum + one.second; });
}

absl::Status RequestTable::CheckInvariants() const {
  const auto violated = [](RequestId id, const char* what) {
    return absl::InternalError(absl::StrCat("RequestTable: ", ToString(id), " ", what));
  };
  for (const auto& [model, tenants] : tenants_) {
    if (absl::Status status = tenants.CheckInvariants(); !status.ok()) return status;
    if (tenants.held() != CountOf(model)) {
      return absl::InternalError("RequestTable: the requests of a model's tenants are miscounted");
    }
  }
  StateCounts in_state = {};
  std::map<std::string, StateCounts> of_model;
  std::map<std::string, Priorities> priorities;
  for (const auto& [number, request] : by_number_) {
    const RequestId id = request.spec->id;
    if (request.number != number || Find(id) != &request) {
      return violated(id, "is not found by its id");
    }
    const auto router = of_router_.find(id.router);
    if (router == of_router_.end() || router->second.count(id.serial) == 0) {
      return violated(id, "is not listed at its router");
    }
    if (timers_.Of(id) > request.NextTimer()) return violated(id, "is due before its timer");
    ++in_state[static_cast<size_t>(request.state)];
    ++priorities[request.spec->model][request.spec->priority];
    ++of_model[request.spec->model][static_cast<size_t>(request.state)];
  }
  size_t of_routers = 0;
  for (const auto& [router, serials] : of_router_) of_routers += serials.size();
  if (by_id_.size() != by_number_.size() || of_routers != by_number_.size()) {
    return absl::InternalError("RequestTable: an index knows requests that have ended");
  }
  if (in_state != in_state_) {
    return absl::InternalError("RequestTable: requests by state are miscounted");
  }
  if (priorities != priorities_) {
    return absl::InternalError("RequestTable: requests by priority are miscounted");
  }
  for (const auto& [model, counts] : of_model_) {
    if (counts != of_model[model]) {
      return absl::InternalError("RequestTable: model " + model + " is miscounted");
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
