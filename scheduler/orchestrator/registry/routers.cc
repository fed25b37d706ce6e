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
  LeaveStream(router);
  absences_.Remove(it->first);
  router.absent = false;
  router.identity = hello.identity;
  router.connection = connection;
  by_connection_[connection] = it->first;
  TakeLoad(router, hello.load, now, listened_us);
  evidence_.Replace(it->first, hello.load.heard);
  return connected;
}

Router* Routers::FindConnected(CallId connection) {
  const auto it = by_connection_.find(connection);
  return it == by_connection_.end() ? nullptr : &routers_.at(it->second);
}

void Routers::Report(Router& router, const RouterLoad& load, TimeUs now, TimeUs listened_us) {
  TakeLoad(router, load, now, listened_us);
  evidence_.Change(router.identity.router, load.heard, load.not_heard);
}

void Routers::TakeLoad(Router& router, const RouterLoad& load, TimeUs now, TimeUs listened_us) {
  router.load = load;
  router.load.heard.clear();
  router.load.not_heard.clear();
  router.heard_us = now;
  leases_.Set(router.identity.router, listened_us + lease_us_);
}

void Routers::Heard(uint64_t router, TimeUs listened_us) {
  if (routers_.contains(router)) leases_.Set(router, listened_us + lease_us_);
}

void Routers::Disconnect(Router& router, TimeUs listened_us) {
  LeaveStream(router);
  absences_.Set(router.identity.router, listened_us + lease_us_ / 2);
}

void Routers::LeaveStream(Router& router) {
  by_connection_.erase(router.connection);
  router.connection = CallId{};
}

std::vector<CallId> Routers::DisconnectAll(TimeUs listened_us) {
  std::vector<CallId> streams;
  for (auto& [id, router] : routers_) {
    if (router.connection == CallId{}) continue;
    streams.push_back(router.connection);
    Disconnect(router, listened_us);
  }
  return streams;
}

void Routers::NoteFailure(RequestId id, const Failed& failed) {
  const auto it = routers_.find(id.router);
  if (it == routers_.end()) return;
  auto& failures = it->second.failures;
  failures[id] = failed;
  if (failures.size() > kMaxFailures) failures.erase(failures.begin());
}

void Routers::ForgetFailure(RequestId id) {
  const auto it = routers_.find(id.router);
  if (it != routers_.end()) it->second.failures.erase(id);
}

const Failed* Routers::FailureOf(RequestId id) const {
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

void Routers::Remove(uint64_t router) {
  const auto it = routers_.find(router);
  if (it == routers_.end()) return;
  LeaveStream(it->second);
  absences_.Remove(router);
  evidence_.ForgetRouter(router);
  leases_.Remove(router);
  routers_.erase(it);
}

std::vector<uint64_t> Routers::TakeSilent(TimeUs listened_us) {
  std::vector<uint64_t> silent;
  while (const std::optional<uint64_t> router = leases_.TakeDue(listened_us)) {
    silent.push_back(*router);
  }
  return silent;
}

std::vector<uint64_t> Routers::TakeAbsent(TimeUs listened_us) {
  std::vector<uint64_t> absent;
  while (const std::optional<uint64_t> router = absences_.TakeDue(listened_us)) {
    routers_.at(*router).absent = true;
    absent.push_back(*router);
  }
  return absent;
}

absl::Status Routers::CheckInvariants() const {
  if (absl::Status status = evidence_.CheckInvariants(); !status.ok()) return status;
  size_t connected = 0;
  for (const auto& [id, router] : routers_) {
    if (leases_.Of(id) == kNever) {
      return absl::InternalError(absl::StrCat("Routers: router ", id, " has no lease"));
    }
    const bool gone = router.connection == CallId{};
    if (gone != (router.absent || absences_.Of(id) != kNever)) {
      return absl::InternalError(absl::StrCat(
          "Routers: router ", id,
          gone ? " has no stream and is not waited for" : " has a stream and is absent"));
    }
    if (gone) continue;
    ++connected;
    const auto known = by_connection_.find(router.connection);
    if (known == by_connection_.end() || known->second != id) {
      return absl::InternalError(
          absl::StrCat("Routers: the stream of router ", id, " is not listed"));
    }
  }
  if (connected != by_connection_.size()) {
    return absl::InternalError("Routers: a stream belongs to no router");
  }
  if (leases_.size() != routers_.size()) {
    return absl::InternalError("Routers: a lease belongs to no router");
  }
  for (const auto& [router, instances] : evidence_.all()) {
    if (routers_.contains(router)) continue;
    return absl::InternalError(
        absl::StrCat("Routers: unknown router ", router, " is listed as hearing instances"));
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler
