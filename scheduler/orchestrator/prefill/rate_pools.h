// RatePools: the prefill instances of each model in the order of their queue times by the rates
// that they report, for plans without a latency profile. Part of OrchestratorCore; one thread.
//
// Cost. A choice looks at the instances that changed since the last one, never at the whole pool.
// When an instance came or went, its pool is read anew.
//
// Invariant (CheckInvariants): each order has exactly the instances that take plans, as they stand,
// but for changes that are noted.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/placement/queue_time.h"
#include "scheduler/placement/rate_order.h"

namespace skein::scheduler::orchestrator {

class RatePools {
 public:
  // `default_tokens_per_second`: of an instance that has not measured yet. The registry outlives
  // this.
  RatePools(Registry* registry, double default_tokens_per_second)
      : registry_(*registry), default_tokens_per_second_(default_tokens_per_second) {}

  // The instances that take plans. REQUIRES: no other caller takes the changes of this pool
  // (Registry::TakeChanged) under its present version.
  const RateOrder& Of(const std::string& model);
  PrefillCandidate CandidateOf(const Instance& instance) const;
  absl::Status CheckInvariants() const;

 private:
  struct Known {
    RateOrder order;
    uint64_t version = 0;  // of the registry's pool
  };
  void Set(const Instance& instance, RateOrder* order) const;

  Registry& registry_;
  const double default_tokens_per_second_;
  std::map<std::string, Known> pools_;  // by model
};

}  // namespace skein::scheduler::orchestrator
