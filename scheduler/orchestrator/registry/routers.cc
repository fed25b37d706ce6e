#include "scheduler/orchestrator/registry/routers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

// Routers of several hosts may have one endpoint by name (0.0.0.0:8000), so the host counts; and
// one whose stream stands is alive.
Routers::Connected Routers::Connect(const RouterHello& hello, CallId connection, TimeUs now,
                                    TimeUs listened_us) {
  const auto [it, is_new] = routers_.try_emplace(hello.identity.router);
  Router& router = it->second;
  Connected connected{.is_new = is_new, .former = router.connection, .replaced = {}};
  for (const auto& [id, other] : routers_) {
    const bool same_place = other.identity.endpoint == hello.identity.endpoint &&
                            other.identity.host == hello.identity.host;
    if (id != it->first && same_place && other.connection == CallId{}) {
      connected.replaced.push_back(id);
    }
  }
  router.identity = hello.identity;
  router.connection = connection;
  Report(router, hello.load, now, listened_us);
  return connected;
}

Router* Routers::FindConnected(CallId connection) {
  for (auto& [id, router] : routers_) {
    if (router.connection == connection) return &router;
  }
  return nullptr;
}

void Routers::Report(Router& router, const RouterLoad& load, TimeUs now, TimeUs listened_us) {
  router.load = load;
  router.heard_us = now;
  router.lease_end_us = listened_us + lease_us_;
}

std::vector<CallId> Routers::DisconnectAll() {
  std::vector<CallId> streams;
  for (auto& [id, router] : routers_) {
    if (router.connection == CallId{}) continue;
    streams.push_back(std::exchange(router.connection, CallId{}));
  }
  return streams;
}

void Routers::NoteFailure(RequestId id, const absl::Status& status) {
  const auto it = routers_.find(id.router);
  if (it == routers_.end()) return;
  auto& failures = it->second.failures;
  failures[id] = status;
  if (failures.size() > kMaxFailures) failures.erase(failures.begin());
}

void Routers::ForgetFailure(RequestId id) {
  const auto it = routers_.find(id.router);
  if (it != routers_.end()) it->second.failures.erase(id);
}

const absl::Status* Routers::FailureOf(RequestId id) const {
  const auto it = routers_.find(id.router);
  if (it == routers_.end()) return nullptr;
  const auto failure = it->second.failures.find(id);
  return failure == it->second.failures.end() ? nullptr : &failure->second;
}

absl::Status Routers::Drain(const DrainRequest& request) {
  const auto it = routers_.find(request.router);
  if (it == routers_.end()) {
    return absl::NotFoundError(absl::StrCat("router ", request.router, " is not known"));
  }
  const auto serving = std::count_if(routers_.begin(), routers_.end(),
                                     [](const auto& entry) { return !entry.second.draining(); });
  if (!request.undo && !request.force && !it->second.draining() && serving <= 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("router ", it->second.identity.endpoint,
                     " is the last one that serves: clients would get 503"));
  }
  it->second.drain_order = !request.undo;
  return absl::OkStatus();
}

const Router* Routers::Find(uint64_t router) const {
  const auto it = routers_.find(router);
  return it == routers_.end() ? nullptr : &it->second;
}

std::vector<uint64_t> Routers::Silent(TimeUs listened_us) const {
  std::vector<uint64_t> silent;
  for (const auto& [id, router] : routers_) {
    if (router.lease_end_us <= listened_us) silent.push_back(id);
  }
  return silent;
}

TimeUs Routers::NextLeaseEnd() const {
  TimeUs end = kNever;
  for (const auto& [id, router] : routers_) end = std::min(end, router.lease_end_us);
  return end;
}

}  // namespace skein::scheduler
