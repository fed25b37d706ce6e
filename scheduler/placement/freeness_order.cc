#include "scheduler/placement/freeness_order.h"

#include "absl/strings/str_cat.h"

namespace skein::scheduler {

void FreenessOrder::Set(const DecodeCandidate& candidate) {
  const auto known = candidates_.find(candidate.instance);
  if (known != candidates_.end()) {
    if (known->second == candidate) return;
    Remove(candidate.instance);
  }
  const InstanceId instance = candidate.instance;
  candidates_[instance] = candidate;
  order_[PlaceOf(candidate)] = {candidate.AvailableBlocks(), candidate.step_s};
  by_room_.emplace(candidate.AvailableBlocks(), instance);
  if (candidate.step_s > 0) by_step_.emplace(candidate.step_s, instance);
}

void FreenessOrder::Remove(InstanceId instance) {
  const auto known = candidates_.find(instance);
  if (known == candidates_.end()) return;
  const DecodeCandidate& candidate = known->second;
  order_.erase(PlaceOf(candidate));
  by_room_.erase({candidate.AvailableBlocks(), instance});
  by_step_.erase({candidate.step_s, instance});
  candidates_.erase(known);
}

const DecodeCandidate* FreenessOrder::Find(InstanceId instance) const {
  const auto known = candidates_.find(instance);
  return known == candidates_.end() ? nullptr : &known->second;
}

absl::Status FreenessOrder::CheckInvariants() const {
  size_t with_step = 0;
  for (const auto& [instance, candidate] : candidates_) {
    with_step += candidate.step_s > 0 ? 1 : 0;
    const auto place = order_.find(PlaceOf(candidate));
    const bool is_in_order = place != order_.end() &&
                             place->second.room == candidate.AvailableBlocks() &&
                             place->second.step_s == candidate.step_s;
    if (is_in_order && by_room_.count({candidate.AvailableBlocks(), instance}) == 1 &&
        by_step_.count({candidate.step_s, instance}) == (candidate.step_s > 0 ? 1U : 0U)) {
      continue;
    }
    return absl::InternalError(absl::StrCat("FreenessOrder: instance ", instance.value,
                                            " is not at its place in an index"));
  }
  if (order_.size() == candidates_.size() && by_room_.size() == candidates_.size() &&
      by_step_.size() == with_step) {
    return absl::OkStatus();
  }
  return absl::InternalError("FreenessOrder: an index has an unknown instance");
}

}  // namespace skein::scheduler
