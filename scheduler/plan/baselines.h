// The baselines of Tetris's section 7.1. All plan one prompt as one chunk.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// REQUIRES what CheckPlanInput checks.

// Tetris without chunks: algorithm 2, which heeds the improvement rate.
PrefillPlan PlanSingleChunk(const LatencyModel& model, const Cluster& cluster,
                            absl::Span<const double> queue_s, int64_t prompt_tokens,
                            const PlanOptions& options);

// As LoongServe schedules a single request, disaggregated: the SP size that minimises this
// request's own time to first token, blind to load. It is algorithm 2 at improvement rate 0.
PrefillPlan PlanGreedy(const LatencyModel& model, const Cluster& cluster,
                       absl::Span<const double> queue_s, int64_t prompt_tokens);

// The cluster is cut into groups of `sp` neighbours for good, and a prompt goes to the group with
// the shortest queue (the first of equals). What is left over of the cluster stays unused. REQUIRES
// `sp` is a size of the model and at most cluster.instances.
void PlanFixedSp(const LatencyModel& model, const Cluster& cluster, int sp,
                 absl::Span<const double> queue_s, int64_t prompt_tokens, PrefillPlan* plan);

}  // namespace skein::scheduler
