#include "scheduler/orchestrator/requests/engine_failures.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::scheduler::orchestrator {

bool EngineFailures::Fail(InstanceId instance, Epoch epoch) {
  if (failed_.count(instance) > 0 || failed_before_.count(instance) > 0) return false;
  (epoch > before_ ? failed_ : failed_before_).insert(instance);
  return true;
}

int64_t EngineFailures::failed() const {
  return std::max(told_, static_cast<int64_t>(failed_before_.size())) +
         static_cast<int64_t>(failed_.size());
}

int64_t EngineFailures::failed_or_lost() const {
  int64_t all = failed();
  for (const InstanceId lost : lost_) all += failed_.count(lost) + failed_before_.count(lost) == 0;
  return all;
}

EngineFailures::Instances EngineFailures::Known() const {
  Instances all = failed_before_;
  all.insert(failed_.begin(), failed_.end());
  all.insert(lost_.begin(), lost_.end());
  return all;
}

std::string EngineFailures::ToString() const {
  const Instances known = Known();
  const std::string names = absl::StrJoin(known, ", ", [](std::string* out, InstanceId instance) {
    absl::StrAppend(out, instance.value);
  });
  const int64_t more = failed_or_lost() - static_cast<int64_t>(known.size());
  if (more == 0) return absl::StrCat("instances ", names);
  const std::string earlier = absl::StrCat(more, " under another orchestrator");
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
  return std::move(taken.mapped());
}

}  // namespace skein::scheduler::orchestrator
