#include "scheduler/plan/baselines.h"

#include <algorithm>
#include <numeric>

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {

PrefillPlan PlanSingleChunk(const LatencyModel& model, const Cluster& cluster,
                            absl::Span<const double> queue_s, int64_t prompt_tokens,
                            const PlanOptions& options) {
  PrefillPlan plan;
  CdspPlanner(model, cluster).PlanSingleChunk(queue_s, prompt_tokens, options, &plan);
  return plan;
}

PrefillPlan PlanGreedy(const LatencyModel& model, const Cluster& cluster,
                       absl::Span<const double> queue_s, int64_t prompt_tokens) {
  return PlanSingleChunk(model, cluster, queue_s, prompt_tokens, {.improvement_rate = 0});
}

void PlanFixedSp(const LatencyModel& model, const Cluster& cluster, int sp,
                 absl::Span<const double> queue_s, int64_t prompt_tokens, PrefillPlan* plan) {
  SKEIN_CHECK(sp >= 1 && sp <= cluster.instances);
  int best = 0;
  double best_s = 0;
  for (int first = 0; first + sp <= cluster.instances; first += sp) {
    const auto queues = queue_s.subspan(static_cast<size_t>(first), static_cast<size_t>(sp));
    const double ready_s = *std::max_element(queues.begin(), queues.end());
    if (first > 0 && ready_s >= best_s) continue;
    best = first;
    best_s = ready_s;
  }
  plan->chunks.resize(1);
  ChunkPlan& chunk = plan->chunks[0];
  chunk.tokens = prompt_tokens;
  chunk.instances.resize(static_cast<size_t>(sp));
  std::iota(chunk.instances.begin(), chunk.instances.end(), best);
  chunk.start_s = best_s;
  chunk.end_s = best_s + model.Seconds(sp, 0, prompt_tokens);
  plan->ttft_s = chunk.end_s;
}

}  // namespace skein::scheduler
