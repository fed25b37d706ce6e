// Algorithms 1, 2 and 3 and equation 2 of Tetris, word for word: allocations as lists, a group
// formed anew for every call, queue times shifted at every chunk, no memory kept, nothing pruned.
// What CdspPlanner must equal; tests only. Exponential in the SP sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// REQUIRES what CheckPlanInput checks, and nodes of one size.
PrefillPlan ReferencePlan(const LatencyModel& model, const Cluster& cluster,
                          const std::vector<double>& queue_s, int64_t prompt_tokens,
                          const PlanOptions& options);

}  // namespace skein::scheduler
