#include "scheduler/orchestrator/requests/engine_failures.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::scheduler::orchestrator {

int64_t EngineFailures::failed_or_lost() const {
  int64_t all = failed();
  for (const InstanceId lost : lost_) all += failed_.count(lost) == 0 ? 1 : 0;
  return all;
}

std::string EngineFailures::ToString() const {
  Instances known = failed_;
  known.insert(lost_.begin(), lost_.end());
  const std::string names = absl::StrJoin(known, ", ", [](std::string* out, InstanceId instance) {
    absl::StrAppend(out, instance.value);
  });
  if (told_ == 0) return absl::StrCat("instances ", names);
  const std::string earlier = absl::StrCat(told_, " under another orchestrator");
  return known.empty() ? earlier : absl::StrCat("instances ", names, ", and ", earlier);
}

void EarlyFailures::Add(RequestId request, InstanceId instance) {
  const auto [it, added] = failures_.try_emplace(request);
  it->second.insert(instance);
  if (!added) return;
  oldest_first_.push_back(request);
  if (oldest_first_.size() <= kMax) return;
  failures_.erase(oldest_first_.front());
  oldest_first_.pop_front();
}

EngineFailures::Instances EarlyFailures::Take(RequestId request) {
  auto taken = failures_.extract(request);
  if (taken.empty()) return {};
  std::erase(oldest_first_, request);
  return std::move(taken.mapped());
}

}  // namespace skein::scheduler::orchestrator
