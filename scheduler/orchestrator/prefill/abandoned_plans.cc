#include "scheduler/orchestrator/prefill/abandoned_plans.h"

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::scheduler::orchestrator {

void AbandonedPlans::Add(RequestId id, Epoch epoch, const std::vector<Holder>& holders,
                         TimeUs end_us) {
  SKEIN_CHECK(!holders.empty() && plans_.count(id) == 0);
  Plan& plan = plans_[id];
  plan.epoch = epoch;
  for (const Holder& holder : holders) {
    at_[holder.instance].insert(id);
    plan.holders[holder.instance] = holder.may_compute;
  }
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
  if (plan == plans_.end() || plan->second.holders.erase(instance) == 0) return false;
  TakeFrom(instance, id);
  if (!plan->second.holders.empty()) return false;
  Forget(id);
  return true;
}

void AbandonedPlans::Forget(RequestId id) {
  const auto plan = plans_.find(id);
  if (plan == plans_.end()) return;
  for (const auto& [instance, may_compute] : plan->second.holders) TakeFrom(instance, id);
  plans_.erase(plan);
  ends_.Remove(id);
}

Epoch AbandonedPlans::EpochOf(RequestId id) const {
  const auto plan = plans_.find(id);
  return plan == plans_.end() ? Epoch{} : plan->second.epoch;
}

bool AbandonedPlans::MayCompute(RequestId id, InstanceId instance) const {
  const auto plan = plans_.find(id);
  if (plan == plans_.end()) return false;
  const auto holder = plan->second.holders.find(instance);
  return holder != plan->second.holders.end() && holder->second;
}

std::vector<RequestId> AbandonedPlans::At(InstanceId instance) const {
  const auto at = at_.find(instance);
  if (at == at_.end()) return {};
  return {at->second.begin(), at->second.end()};
}

std::optional<AbandonedPlans::Overdue> AbandonedPlans::TakeOverdue(TimeUs listened_us) {
  const std::optional<RequestId> id = ends_.TakeDue(listened_us);
  if (!id.has_value()) return std::nullopt;
  Overdue overdue{*id, {}};
  for (const auto& [instance, may_compute] : plans_.at(*id).holders) {
    overdue.silent.insert(instance);
  }
  Forget(*id);
  return overdue;
}

absl::Status AbandonedPlans::CheckInvariants() const {
  const auto violated = [](RequestId id, const char* what) {
    return absl::InternalError(absl::StrCat("AbandonedPlans: ", ToString(id), " ", what));
  };
  size_t places = 0;
  for (const auto& [id, plan] : plans_) {
    if (plan.holders.empty()) {
      return violated(id, "is kept although no instance has to confirm its end");
    }
    if (ends_.Of(id) == kNever) return violated(id, "is waited for without a time limit");
    for (const auto& [instance, may_compute] : plan.holders) {
      const auto at = at_.find(instance);
      if (at == at_.end() || at->second.count(id) == 0) {
        return violated(id, "is not listed at its instance");
      }
    }
    places += plan.holders.size();
  }
  for (const auto& [instance, ids] : at_) places -= ids.size();
  if (places != 0) {
    return absl::InternalError("AbandonedPlans: an instance lists plans that have ended");
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
