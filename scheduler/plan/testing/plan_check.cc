#include "scheduler/plan/testing/plan_check.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"

namespace skein::scheduler {
namespace {

constexpr double kToleranceS = 1e-9;

absl::Status Violated(size_t chunk, int invariant, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("chunk ", chunk, ", invariant ", invariant, ": ", what));
}

bool Ascends(const std::vector<int>& instances) {
  return std::adjacent_find(instances.begin(), instances.end(), std::greater_equal<>()) ==
         instances.end();
}

}  // namespace

absl::Status CheckPlan(const LatencyModel& model, const Cluster& cluster,
                       absl::Span<const double> queue_s, int64_t prompt_tokens,
                       const PrefillPlan& plan) {
  if (plan.chunks.empty()) return Violated(0, 1, "the plan has no chunks");
  int64_t history = 0;
  double before_s = 0;
  const std::vector<int>* before = nullptr;
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    const ChunkPlan& chunk = plan.chunks[i];
    const std::vector<int>& instances = chunk.instances;
    if (chunk.tokens < 1) return Violated(i, 1, "the chunk has no tokens");
    if (instances.empty() || !Ascends(instances) || instances.front() < 0 ||
        instances.back() >= cluster.instances) {
      return Violated(i, 2, "its instances are not ascending, or not in the cluster");
    }
    if (before != nullptr &&
        !std::includes(instances.begin(), instances.end(), before->begin(), before->end())) {
      return Violated(i, 2, "an instance of the previous chunk is missing");
    }
    if (!model.HasSp(static_cast<int>(instances.size()))) {
      return Violated(i, 2, absl::StrCat("the model has no SP size ", instances.size()));
    }
    double ready_s = before_s;
    for (const int instance : instances) {
      ready_s = std::max(ready_s, queue_s[static_cast<size_t>(instance)]);
    }
    if (!(chunk.start_s >= ready_s - kToleranceS))
      return Violated(i, 3, "it starts before its instances are free");
    const double seconds = model.Seconds(static_cast<int>(instances.size()), history, chunk.tokens);
    if (!(std::abs(chunk.end_s - chunk.start_s - seconds) <= kToleranceS)) {
      return Violated(i, 4, "its end is not its start plus the model's time");
    }
    history += chunk.tokens;
    before_s = chunk.end_s;
    before = &instances;
  }
  const size_t last = plan.chunks.size() - 1;
  if (history != prompt_tokens) return Violated(last, 1, "the chunks do not sum to the prompt");
  if (plan.ttft_s != before_s) return Violated(last, 4, "ttft_s differs from its end");
  return absl::OkStatus();
}

}  // namespace skein::scheduler
