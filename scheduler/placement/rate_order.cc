#include "scheduler/placement/rate_order.h"

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

void RateOrder::Set(const PrefillCandidate& candidate) {
  const auto known = candidates_.find(candidate.instance);
  if (known != candidates_.end() && known->second == candidate) return;
  Remove(candidate.instance);
  candidates_[candidate.instance] = candidate;
  order_.insert(PlaceOf(candidate));
  by_rate_.emplace(candidate.tokens_per_second, candidate.instance);
}

void RateOrder::Remove(InstanceId instance) {
  const auto known = candidates_.find(instance);
  if (known == candidates_.end()) return;
  order_.erase(PlaceOf(known->second));
  by_rate_.erase({known->second.tokens_per_second, instance});
  candidates_.erase(known);
}

const PrefillCandidate* RateOrder::Find(InstanceId instance) const {
  const auto known = candidates_.find(instance);
  return known == candidates_.end() ? nullptr : &known->second;
}

absl::Status RateOrder::CheckInvariants() const {
  for (const auto& [instance, candidate] : candidates_) {
    if (order_.count(PlaceOf(candidate)) == 1 &&
        by_rate_.count({candidate.tokens_per_second, instance}) == 1) {
      continue;
    }
    return absl::InternalError(
        absl::StrCat("RateOrder: instance ", instance.value, " is not at its place in an index"));
  }
  if (order_.size() == size() && by_rate_.size() == size()) return absl::OkStatus();
  return absl::InternalError("RateOrder: an index has an unknown instance");
}

}  // namespace skein::scheduler
