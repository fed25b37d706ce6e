#include "scheduler/simulator/simulator.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "scheduler/plan/baselines.h"
#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/simulator/elastic_pool_run.h"
#include "scheduler/simulator/pipeline_run.h"

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

PrefillRun RunPipelinePolicy(const Policy& policy, const std::vector<SimRequest>& requests,
                             const LatencyModel& model, const Cluster& cluster,
                             const ChunkObserver& observer) {
  const PipelineOptions options = policy.dynamic ? PipelineOptions::Dynamic(policy.stages)
                                                 : PipelineOptions::Fixed(policy.stages);
  const int index = model.IndexOf(1);
  return RunPipelines(
      requests, cluster.instances, options,
      [&model, index](int64_t history, int64_t tokens) {
        return model.SecondsAt(index, history, tokens);
      },
      observer);
}

// What a policy makes of the load.
struct WholeRun {
  PrefillRun prefill;
  DecodeRun decode;
  int prefill_instances = 0;  // that may compute prompts
  int decode_instances = 0;   // that may decode
  // With groups of decode instances.
  std::optional<DecodeFigures> figures = {};
  std::vector<DecodeOutcome> decoded = {};
};

WholeRun RunWhole(const Policy& policy, const std::vector<SimRequest>& requests,
                  const LatencyModel& model, const Cluster& cluster, const Tuning& tuning,
                  const DecodeOptions& decode, const ChunkObserver& observer,
                  const DecodeGroupsOptions* groups) {
  if (policy.kind == Policy::Kind::kLoongServe) {
    const ElasticPoolOptions options = ElasticPoolOptions::Of(cluster.instances, decode);
    ElasticPoolRun run = RunElasticPool(requests, model, options, observer);
    return {std::move(run.prefill), std::move(run.decode), options.instances, options.instances};
  }
  WholeRun run{RunPolicy(policy, requests, model, cluster, tuning, observer),
               {},
               cluster.instances,
               decode.instances};
  if (groups == nullptr) {
    run.decode = RunDecode(requests, run.prefill.outcomes, decode);
    return run;
  }
  DecodeGroupsRun grouped = RunDecodeGroups(requests, run.prefill.outcomes, decode, *groups);
  run.decode = std::move(grouped.run);
  run.figures = std::move(grouped.figures);
  run.decoded = std::move(grouped.outcomes);
  return run;
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
  if (policy.kind == Policy::Kind::kPipeline) {
    return RunPipelinePolicy(policy, requests, model, cluster, observer);
  }
  if (policy.kind == Policy::Kind::kLoongServe) {
    const ElasticPoolOptions options = ElasticPoolOptions::Of(cluster.instances, {});
    return RunElasticPool(requests, model, options, observer).prefill;
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
  WholeRun run = RunWhole(policy, requests, model, cluster, tuning, decode, observer, groups);
  const PrefillRun& prefill = run.prefill;
  const DecodeRun& decoded = run.decode;
  SimulationResult result;
  if (run.figures.has_value()) {
    result.decode = std::move(run.figures);
    result.decoded = std::move(run.decoded);
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
  const double per_instance_s = prefill.busy_instance_s / run.prefill_instances;
  result.utilisation = per_instance_s / prefill_span_s;
  result.idle_s = prefill_span_s - per_instance_s;
  result.decode_utilisation = decoded.busy_instance_s / (run.decode_instances * span_s);
  result.requests = static_cast<int64_t>(requests.size());
  result.chunks = prefill.chunks;
  result.shapes = prefill.shapes;
  return result;
}

}  // namespace skein::scheduler
