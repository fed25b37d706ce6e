// PlanChooser: which instances compute a prompt. It decides from the queue times of a pool, the
// policy and the memory of the instances, and changes nothing but the planners' own state. Part of
// OrchestratorCore.
//
// A request that asks for a shape (PrefillShape) gets it, whatever the policy and the queues; it
// waits, or fails if there are not so many instances. A further attempt goes to the instance that
// may have kept the KV of the one before: there it takes one step.
//
// Instances that did not reach each other in a ring step (UnreachablePairs) are not planned
// together as long as there is another way: of such a pair, one is left out. The rolling planner
// decides later than this; while any pair is barred, a prompt that it would have is computed by one
// instance.
//
// Cost. Beside the planner, one walk over the pool's arrays (PrefillPools::QueueOf); without a
// profile none (RatePools). Only a prompt that does not fit the smallest instance of its pool costs
// more: then the memory of each is looked at.
//
// A prompt that is larger than the memory of the instances that were chosen is computed by as many
// together as have room for its KV, dealt as they themselves will deal it (scheduler/kv/deal.h).
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/ids.h"
#include "scheduler/base/time.h"
#include "scheduler/orchestrator/explain/explanation.h"
#include "scheduler/orchestrator/prefill/prefill_pools.h"
#include "scheduler/orchestrator/prefill/rate_pools.h"
#include "scheduler/orchestrator/registry/registry.h"
#include "scheduler/orchestrator/registry/unreachable_pairs.h"
#include "scheduler/orchestrator/requests/request.h"
#include "scheduler/placement/queue_time.h"

namespace skein::scheduler::orchestrator {

struct PlanChoice {
  enum class Kind {
    kPlan,  // `chunks`
    kPark,  // no instance takes the request now
    kRoll,  // the rolling planner decides, chunk by chunk
    kFail,  // `failure`
  };
  Kind kind = Kind::kPark;
  std::vector<PlannedChunk> chunks = {};
  PlanExplanation explanation = {};  // of kPlan and kRoll, without its epoch
  absl::Status failure = {};
};

class PlanChooser {
 public:
  // `default_tokens_per_second`: of an instance that has not measured yet. The registry and the
  // pairs outlive this.
  PlanChooser(Registry* registry, const UnreachablePairs* pairs, double default_tokens_per_second)
      : registry_(*registry), pairs_(*pairs), rates_(registry, default_tokens_per_second) {}

  // `pool` is null: the one instance with the earliest end by the rates that the instances report.
  // REQUIRES that `pools` laid `pool` out over the instances that are registered.
  PlanChoice Choose(const Request& request, PrefillPools& pools, PrefillPools::Pool* pool,
                    TimeUs now);
  PrefillCandidate CandidateOf(const Instance& instance) const {
    return rates_.CandidateOf(instance);
  }
  absl::Status CheckInvariants() const { return rates_.CheckInvariants(); }

 private:
  using Pool = PrefillPools::Pool;
  using Instances = std::set<InstanceId>;

  struct Soonest {
    double queue_s = kAbsentQueueS;
    InstanceId instance;  // 0: none
  };
  // By others than `without`, of which the request's tried_prefill are some.
  PlanChoice ChooseWithout(const Instances& without, const Request& request, PrefillPools& pools,
                           Pool* pool, TimeUs now);
  // Some of the pool do not reach each other.
  bool HasParted(const Pool& pool) const;
  // One of a barred pair that a chunk has together; none: there is no such pair.
  std::optional<InstanceId> PartedIn(const std::vector<PlannedChunk>& chunks) const;
  PlanChoice ChooseByRate(const Request& request);
  Soonest SoonestThatHoldsAll(const Request& request, const Pool& pool,
                              const PoolQueue& queue) const;
  PlanChoice ChooseOne(const Request& request, const Pool& pool, const PoolQueue& queue,
                       const char* why) const;
  PlanChoice ChooseByPolicy(const Request& request, Pool& pool, const PoolQueue& queue,
                            TimeUs now) const;
  // By the instance that may have kept the prompt's KV, if it takes plans.
  std::optional<PlanChoice> ChooseKept(const Request& request, PrefillPools& pools, Pool* pool,
                                       TimeUs now) const;
  // Of a request that asks for a shape of several instances.
  PlanChoice ChooseAsked(const Instances& without, const Request& request) const;
  PlanChoice ChooseToFit(const Request& request, const Pool& pool, const PoolQueue& queue) const;
  PlanChoice Roll(const Request& request, Pool& pool, const PoolQueue& queue) const;
  PlanChoice TooLarge(const Request& request) const;

  bool EachHoldsAll(const Request& request, const Pool& pool, const PoolQueue& queue) const;
  bool Fits(const Request& request, const std::vector<PlannedChunk>& chunks) const;
  std::optional<ChunkPlan> ShareAmong(int sp, int64_t more_blocks, const Request& request,
                                      const Pool& pool, const PoolQueue& queue) const;
  bool MayBeTakenLater(const Request& request) const;
  int64_t BlocksOfPrompt(const Request& request) const;  // at any instance of its model
  int64_t Untried(const Request& request) const;         // instances that take plans now

  const Registry& registry_;
  const UnreachablePairs& pairs_;
  RatePools rates_;
  bool tenants_seen_ = false;  // a request had one
};

}  // namespace skein::scheduler::orchestrator
