#include "scheduler/orchestrator/groups/pins.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"

namespace skein::scheduler::orchestrator {

namespace {

std::optional<int32_t> IndexOf(const GroupOrder& order, InstanceId instance) {
  for (size_t i = 0; i < order.members.size(); ++i) {
    if (order.members[i].instance == instance) return static_cast<int32_t>(i);
  }
  return std::nullopt;
}

bool IsIn(const std::vector<InstanceId>& members, InstanceId instance) {
  return std::find(members.begin(), members.end(), instance) != members.end();
}

}  // namespace

void Pins::Bind(const std::vector<InstanceId>& members, const PinnedBind& how) {
  Unpin(members);
  bound_[members] = how;
}

void Pins::Alone(const std::vector<InstanceId>& instances) {
  Unpin(instances);
  alone_.insert(instances.begin(), instances.end());
}

void Pins::Unpin(const std::vector<InstanceId>& instances) {
  for (const InstanceId instance : instances) {
    alone_.erase(instance);
    std::erase_if(bound_, [&](const auto& bound) { return IsIn(bound.first, instance); });
  }
}

bool Pins::Has(InstanceId instance) const {
  if (alone_.contains(instance)) return true;
  return std::any_of(bound_.begin(), bound_.end(),
                     [&](const auto& bound) { return IsIn(bound.first, instance); });
}

const PinnedBind* Pins::BoundAs(const std::vector<InstanceId>& members) const {
  const auto bound = bound_.find(members);
  return bound == bound_.end() ? nullptr : &bound->second;
}

std::vector<Subset> Pins::In(const GroupOrder& order) const {
  std::vector<Subset> subsets;
  for (const auto& [members, how] : bound_) {
    const std::optional<int32_t> first = IndexOf(order, members.front());
    if (first && !how.shares) subsets.push_back({*first, static_cast<int32_t>(members.size())});
    for (size_t i = 0; how.shares && i < members.size(); ++i) {
      const std::optional<int32_t> index = IndexOf(order, members[i]);
      if (index) subsets.push_back({*index, 1});
    }
  }
  for (const InstanceId instance : alone_) {
    const std::optional<int32_t> index = IndexOf(order, instance);
    if (index) subsets.push_back({*index, 1});
  }
  std::sort(subsets.begin(), subsets.end());
  return subsets;
}

std::vector<Subset> Pins::SharedIn(const GroupOrder& order) const {
  std::vector<Subset> subsets;
  for (const auto& [members, how] : bound_) {
    if (!how.shares) continue;
    const std::optional<int32_t> first = IndexOf(order, members.front());
    if (first) subsets.push_back({*first, static_cast<int32_t>(members.size())});
  }
  std::sort(subsets.begin(), subsets.end());
  return subsets;
}

absl::Status Pins::CheckInvariants() const {
  std::set<InstanceId> pinned = alone_;
  size_t count = alone_.size();
  for (const auto& [members, how] : bound_) {
    if (members.size() < 2) return absl::InternalError("Pins: one instance alone is pinned bound");
    pinned.insert(members.begin(), members.end());
    count += members.size();
  }
  if (pinned.size() == count) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("Pins: ", count - pinned.size(), " instances are in two pins"));
}

}  // namespace skein::scheduler::orchestrator
