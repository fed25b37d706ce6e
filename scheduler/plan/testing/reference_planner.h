// Algorithms 1, 2 and 3 and equation 2 of Tetris, literally: allocations as lists, a new group for
// every call, queue times shifted at every chunk, no memoisation, no pruning. CdspPlanner must give
// the same plans. For tests only; exponential in the number of SP sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// REQUIRES what CheckPlanInput checks, and nodes of equal size.
PrefillPlan ReferencePlan(const LatencyModel& model, const Cluster& cluster,
                          const std::vector<double>& queue_s, int64_t prompt_tokens,
                          const PlanOptions& options);

}  // namespace skein::scheduler
