#include "scheduler/simulator/simulator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "scheduler/plan/baselines.h"
#include "scheduler/plan/cdsp/cdsp_planner.h"

namespace skein::scheduler {
namespace {

CommittingPlanner PlannerOf(const Policy& policy, CdspPlanner* planner,
                            ImprovementRateSelector* selector) {
  using Queue = absl::Span<const double>;
  const auto options = [selector](const SimRequest& request) {
    const TimeUs now = ToMicroseconds(request.arrival_s);
    selector->OnArrival(now);
    PlanOptions result;
    result.improvement_rate = selector->Rate(now);
    return result;
  };
  switch (policy.kind) {
    case Policy::Kind::kFixed:
      return [planner, sp = policy.sp](const SimRequest& request, Queue queue_s,
                                       PrefillPlan* plan) {
        PlanFixedSp(planner->model(), planner->cluster(), sp, queue_s, request.prompt_tokens, plan);
      };
    case Policy::Kind::kGreedy:
      return [planner](const SimRequest& request, Queue queue_s, PrefillPlan* plan) {
        planner->PlanSingleChunk(queue_s, request.prompt_tokens, {}, plan);
      };
    case Policy::Kind::kSingle:
      return [planner, options](const SimRequest& request, Queue queue_s, PrefillPlan* plan) {
        planner->PlanSingleChunk(queue_s, request.prompt_tokens, options(request), plan);
      };
    default:
      return [planner, options](const SimRequest& request, Queue queue_s, PrefillPlan* plan) {
        planner->Plan(queue_s, request.prompt_tokens, options(request), plan);
      };
  }
}

double Mean(double sum, size_t count) { return count == 0 ? 0 : sum / static_cast<double>(count); }

}  // namespace

PrefillRun RunPolicy(const Policy& policy, const std::vector<SimRequest>& requests,
                     const LatencyModel& model, const Cluster& cluster, const Tuning& tuning,
                     const ChunkObserver& observer) {
  if (policy.kind == Policy::Kind::kRolling) {
    RollingSelector selector(tuning.rolling);
    RollingPlanner planner(model, cluster);
    return RunRolling(requests, &planner, &selector, observer);
  }
  ImprovementRateSelector selector(tuning.improvement_rates);
  CdspPlanner planner(model, cluster);
  return RunCommitting(requests, model, cluster, PlannerOf(policy, &planner, &selector), observer);
}

std::vector<double> TtftSeconds(const std::vector<SimRequest>& requests, const PrefillRun& run) {
  std::vector<double> ttft_s(requests.size());
  for (size_t r = 0; r < requests.size(); ++r) {
    ttft_s[r] = run.outcomes[r].end_s - requests[r].arrival_s;
  }
  return ttft_s;
}

SimulationResult Simulate(const Policy& policy, const std::vector<SimRequest>& requests,
                          const LatencyModel& model, const Cluster& cluster, const Tuning& tuning,
                          const DecodeOptions& decode, const ChunkObserver& observer,
                          const DecodeGroupsOptions* groups) {
  const PrefillRun prefill = RunPolicy(policy, requests, model, cluster, tuning, observer);
  SimulationResult result;
  DecodeRun decoded;
  if (groups == nullptr) {
    decoded = RunDecode(requests, prefill.outcomes, decode);
  } else {
    DecodeGroupsRun run = RunDecodeGroups(requests, prefill.outcomes, decode, *groups);
    decoded = std::move(run.run);
    result.decode = std::move(run.figures);
    result.decoded = std::move(run.outcomes);
    result.prefilled = prefill.outcomes;
  }
  result.ttft_s = TtftSeconds(requests, prefill);
  double queue_s = 0;
  double tokens = 0;
  for (size_t r = 0; r < requests.size(); ++r) {
    queue_s += prefill.outcomes[r].start_s - requests[r].arrival_s;
    tokens += static_cast<double>(requests[r].prompt_tokens + requests[r].output_tokens);
  }
  result.ttft_mean_s =
      Mean(std::accumulate(result.ttft_s.begin(), result.ttft_s.end(), 0.0), requests.size());
  std::sort(result.ttft_s.begin(), result.ttft_s.end());
  result.ttft_p50_s = PercentileOfSorted(result.ttft_s, 0.5);
  result.ttft_p99_s = PercentileOfSorted(result.ttft_s, 0.99);
  result.queue_mean_s = Mean(queue_s, requests.size());
  result.tbt_p50_s = decoded.tbt.Percentile(0.5);
  result.tbt_p99_s = decoded.tbt.Percentile(0.99);
  result.requests_per_s = MeanRate(requests);
  const double begin_s = requests.front().arrival_s;
  const double prefill_span_s = prefill.end_s - begin_s;
  const double span_s = std::max(prefill.end_s, decoded.end_s) - begin_s;
  result.throughput_tokens_per_s = tokens / span_s;
  const double per_instance_s = prefill.busy_instance_s / cluster.instances;
  result.utilisation = per_instance_s / prefill_span_s;
  result.idle_s = prefill_span_s - per_instance_s;
  result.decode_utilisation = decoded.busy_instance_s / (decode.instances * span_s);
  result.requests = static_cast<int64_t>(requests.size());
  result.chunks = prefill.chunks;
  return result;
}

}  // namespace skein::scheduler
