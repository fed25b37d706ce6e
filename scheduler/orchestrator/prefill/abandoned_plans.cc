#include "scheduler/orchestrator/prefill/abandoned_plans.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler::orchestrator {

void AbandonedPlans::Add(RequestId id, Epoch epoch, std::set<InstanceId> instances, TimeUs end_us) {
  SKEIN_CHECK(!instances.empty() && plans_.count(id) == 0);
  for (const InstanceId instance : instances) at_[instance].insert(id);
  plans_.emplace(id, Plan{epoch, std::move(instances)});
  ends_.Set(id, end_us);
}

void AbandonedPlans::TakeFrom(InstanceId instance, RequestId id) {
  const auto at = at_.find(instance);
  if (at == at_.end()) return;
  at->second.erase(id);
  if (at->second.empty()) at_.erase(at);
}

bool AbandonedPlans::Left(RequestId id, InstanceId instance) {
  const auto plan = plans_.find(id);
  if (plan == plans_.end() || plan->second.instances.erase(instance) == 0) return false;
  TakeFrom(instance, id);
  if (!plan->second.instances.empty()) return false;
  Forget(id);
  return true;
}

void AbandonedPlans::Forget(RequestId id) {
  const auto plan = plans_.find(id);
  if (plan == plans_.end()) return;
  for (const InstanceId instance : plan->second.instances) TakeFrom(instance, id);
  plans_.erase(plan);
  ends_.Remove(id);
}

Epoch AbandonedPlans::EpochOf(RequestId id) const {
  const auto plan = plans_.find(id);
  return plan == plans_.end() ? Epoch{} : plan->second.epoch;
}

std::vector<RequestId> AbandonedPlans::At(InstanceId instance) const {
  const auto at = at_.find(instance);
  if (at == at_.end()) return {};
  return {at->second.begin(), at->second.end()};
}

std::optional<AbandonedPlans::Overdue> AbandonedPlans::TakeOverdue(TimeUs listened_us) {
  const std::optional<RequestId> id = ends_.TakeDue(listened_us);
  if (!id.has_value()) return std::nullopt;
  Overdue overdue{*id, plans_.at(*id).instances};
  Forget(*id);
  return overdue;
}

absl::Status AbandonedPlans::CheckInvariants() const {
  const auto violated = [](RequestId id, const char* what) {
    return absl::InternalError(absl::StrCat("AbandonedPlans: ", ToString(id), " ", what));
  };
  size_t places = 0;
  for (const auto& [id, plan] : plans_) {
    if (plan.instances.empty()) {
      return violated(id, "is kept although no instance has to confirm its end");
    }
    if (ends_.Of(id) == kNever) return violated(id, "is waited for without a time limit");
    for (const InstanceId instance : plan.instances) {
      const auto at = at_.find(instance);
      if (at == at_.end() || at->second.count(id) == 0) {
        return violated(id, "is not listed at its instance");
      }
    }
    places += plan.instances.size();
  }
  for (const auto& [instance, ids] : at_) places -= ids.size();
  if (places != 0) {
    return absl::InternalError("AbandonedPlans: an instance lists plans that have ended");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
