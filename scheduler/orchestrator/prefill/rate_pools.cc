#include "scheduler/orchestrator/prefill/rate_pools.h"

#include "absl/strings/str_cat.h"

namespace skein::scheduler::orchestrator {

PrefillCandidate RatePools::CandidateOf(const Instance& instance) const {
  PrefillCandidate candidate{.instance = instance.id,
                             .queued_tokens = instance.load.queued_tokens,
                             .unreported_tokens = instance.unreported.prompt_tokens,
                             .tokens_per_second = instance.load.tokens_per_second};
  if (candidate.tokens_per_second <= 0) candidate.tokens_per_second = default_tokens_per_second_;
  return candidate;
}

void RatePools::Set(const Instance& instance, RateOrder* order) const {
  instance.TakesAssigns() ? order->Set(CandidateOf(instance)) : order->Remove(instance.id);
}

const RateOrder& RatePools::Of(const std::string& model) {
  Known& known = pools_[model];
  const uint64_t version = registry_.PoolVersion(model, Role::kPrefill);
  const std::vector<const Instance*> changed = registry_.TakeChanged(model, Role::kPrefill);
  if (known.version == version) {
    for (const Instance* instance : changed) Set(*instance, &known.order);
    return known.order;
  }
  known = {.order = {}, .version = version};
  for (const Instance* instance : registry_.Pool(model, Role::kPrefill)) {
    Set(*instance, &known.order);
  }
  return known.order;
}

absl::Status RatePools::CheckInvariants() const {
  for (const auto& [model, known] : pools_) {
    if (absl::Status status = known.order.CheckInvariants(); !status.ok()) return status;
    if (known.version != registry_.PoolVersion(model, Role::kPrefill)) continue;
    for (const Instance* instance : registry_.Pool(model, Role::kPrefill)) {
      if (instance->change_noted()) continue;
      const PrefillCandidate* found = known.order.Find(instance->id);
      const bool same = found == nullptr
                            ? !instance->TakesAssigns()
                            : instance->TakesAssigns() && *found == CandidateOf(*instance);
      if (same) continue;
      return absl::InternalError(
          absl::StrCat("RatePools: the entry of instance ", instance->id.value, " is out of date"));
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::scheduler::orchestrator
