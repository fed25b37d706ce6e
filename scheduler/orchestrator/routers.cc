#include "scheduler/orchestrator/routers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

bool Routers::Report(RouterReport report, TimeUs now, TimeUs listened_us) {
  const auto [it, fresh] = routers_.try_emplace(report.router);
  report.ended.clear();
  it->second.report = std::move(report);
  it->second.heard_us = now;
  it->second.lease_end_us = listened_us + lease_us_;
  return fresh;
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
        absl::StrCat("router ", it->second.report.endpoint,
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
