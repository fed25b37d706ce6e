// The baselines of Tetris's section 7.1. All plan one prompt as one chunk.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// REQUIRES what CheckPlanInput checks.

// Tetris without chunks: algorithm 2, with the improvement rate.
PrefillPlan PlanSingleChunk(const LatencyModel& model, const Cluster& cluster,
                            absl::Span<const double> queue_s, int64_t prompt_tokens,
                            const PlanOptions& options);

// LoongServe's schedule for a single request, disaggregated: the SP size that minimises this
// request's own time to first token, ignoring load. Equals algorithm 2 at improvement rate 0.
PrefillPlan PlanGreedy(const LatencyModel& model, const Cluster& cluster,
                       absl::Span<const double> queue_s, int64_t prompt_tokens);

// The cluster is divided statically into groups of `sp` neighbours. A prompt goes to the group with
// the shortest queue (the first of equals). Remaining instances stay unused. REQUIRES `sp` is a
// size of the model and at most cluster.instances.
void PlanFixedSp(const LatencyModel& model, const Cluster& cluster, int sp,
                 absl::Span<const double> queue_s, int64_t prompt_tokens, PrefillPlan* plan);

}  // namespace skein::scheduler
