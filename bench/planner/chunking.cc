// What one chunk costs against several: Tetris's figure 13, under inputs that the paper does not
// give. For each set-up: the largest slowdown of the P50 and the P99 TTFT without chunks (single
// over tetris) over loads that Tetris sustains, as the paper reports "up to".
//
//   bazel run --config=opt //bench/planner:chunking [-- REQUESTS SEEDS]
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/plan/latency/builtin_models.h"
#include "scheduler/simulator/metrics.h"
#include "scheduler/simulator/rate_profiler.h"

namespace skein::scheduler {
namespace {

struct Setup {
  const char* name;
  double c_over_d = 2;  // history against own tokens, for each pair of tokens
  double constant = 1;  // factor of a
  double rate = -1;     // improvement rate; -1: tuned for each load
  double occupied = 0;  // share of the instances' time that other work takes, one at a time
  int64_t other_tokens = 16'000;  // of each piece of other work
  double lengths = 1;             // factor of all prompts
  int nodes = 1;                  // factor of the instances
  int node_size = 0;              // 0: that of the cluster
  int64_t burst = 1;
};

struct Bench {
  const char* name;
  const LatencyModel* model;
  Cluster cluster;
};

LatencyModel Varied(const LatencyModel& model, const Setup& setup) {
  std::map<int, SpCoefficients> sizes;
  for (const int sp : model.sp_sizes()) {
    SpCoefficients k = model.CoefficientsAt(model.IndexOf(sp));
    k.a_s *= setup.constant;
    k.c_s_per_token2 = setup.c_over_d * k.d_s_per_token2;
    sizes[sp] = k;
  }
  return *LatencyModel::Make(sizes);
}

// Requests, and other work on one random instance at a time.
struct Load {
  std::vector<SimRequest> requests;
  std::vector<int> only_at;  // of other work: its instance; of requests: -1
};

class Experiment {
 public:
  Experiment(const Bench& bench, const Setup& setup, const char* trace, int64_t requests, int seeds)
      : setup_(setup),
        model_(Varied(*bench.model, setup)),
        cluster_{bench.cluster.instances * setup.nodes,
                 setup.node_size > 0 ? setup.node_size : bench.cluster.node_size},
        lengths_(*LengthDistribution::OfPaper(trace)),
        requests_(requests),
        seeds_(seeds) {}

  // The most requests a second that the instances could compute, all busy at the cheapest SP size.
  double Capacity() const {
    Random random(1);
    double instance_s = 0;
    constexpr int kSamples = 1000;
    for (int i = 0; i < kSamples; ++i) {
      const auto tokens =
          static_cast<int64_t>(setup_.lengths * static_cast<double>(lengths_.Sample(&random)));
      double least_s = INFINITY;
      for (const int sp : model_.sp_sizes()) {
        if (sp > cluster_.instances) continue;
        least_s = std::min(least_s, sp * model_.Seconds(sp, 0, tokens));
      }
      instance_s += least_s;
    }
    return cluster_.instances * kSamples / instance_s * (1 - setup_.occupied);
  }

  struct Times {
    double p50_s = 0;
    double p99_s = 0;
  };
  struct Row {
    Times tetris, single;  // geometric means over the seeds
    double Slowdown50() const { return single.p50_s / tetris.p50_s; }
    double Slowdown99() const { return single.p99_s / tetris.p99_s; }
  };

  Row At(double requests_per_s) const {
    ImprovementRateTable table = ImprovementRateTable::Constant(std::max(0.0, setup_.rate));
    if (setup_.rate < 0) {
      table = ProfileLoads(
                  {requests_per_s}, [&](double load, int) { return Requests(load, 900); }, model_,
                  cluster_,
                  /*tune_rolling=*/false)
                  .tuning.improvement_rates;
    }
    Row row{{1, 1}, {1, 1}};
    for (int seed = 1; seed <= seeds_; ++seed) {
      const Load load = Occupied(Requests(requests_per_s, static_cast<uint64_t>(seed)),
                                 static_cast<uint64_t>(seed));
      for (Times* times : {&row.tetris, &row.single}) {
        const Times got = Run(load, table, times == &row.tetris);
        times->p50_s *= std::pow(got.p50_s, 1.0 / seeds_);
        times->p99_s *= std::pow(got.p99_s, 1.0 / seeds_);
      }
    }
    return row;
  }

 private:
  std::vector<SimRequest> Requests(double requests_per_s, uint64_t seed) const {
    std::vector<SimRequest> requests = GenerateWorkload(
        lengths_, LengthDistribution::Outputs(), {requests_per_s, requests_, setup_.burst, seed});
    for (SimRequest& request : requests) {
      request.prompt_tokens =
          static_cast<int64_t>(setup_.lengths * static_cast<double>(request.prompt_tokens));
    }
    return requests;
  }

  Load Occupied(const std::vector<SimRequest>& requests, uint64_t seed) const {
    Load load;
    const double each_s = model_.Seconds(1, 0, setup_.other_tokens);
    const double gap_s =
        setup_.occupied > 0 ? each_s / (setup_.occupied * cluster_.instances) : INFINITY;
    Random random(seed + 77);
    double next_s = setup_.occupied > 0 ? random.Exponential(gap_s) : INFINITY;
    for (const SimRequest& request : requests) {
      for (; next_s < request.arrival_s; next_s += random.Exponential(gap_s)) {
        load.requests.push_back({next_s, setup_.other_tokens, 1});
        load.only_at.push_back(
            static_cast<int>(random.Below(static_cast<uint64_t>(cluster_.instances))));
      }
      load.requests.push_back(request);
      load.only_at.push_back(-1);
    }
    return load;
  }

  Times Run(const Load& load, const ImprovementRateTable& table, bool chunks) const {
    CdspPlanner planner(model_, cluster_);
    ImprovementRateSelector selector(table);
    size_t next = 0;
    const PrefillRun run = RunCommitting(
        load.requests, model_, cluster_,
        [&](const SimRequest& request, absl::Span<const double> queue_s, PrefillPlan* plan) {
          const int only_at = load.only_at[next++];
          if (only_at >= 0) {
            plan->chunks = {{request.prompt_tokens, {only_at}, 0, 0}};
            return;
          }
          const TimeUs now = ToMicroseconds(request.arrival_s);
          selector.OnArrival(now);
          PlanOptions options;
          options.improvement_rate = selector.Rate(now);
          if (chunks) {
            planner.Plan(queue_s, request.prompt_tokens, options, plan);
          } else {
            planner.PlanSingleChunk(queue_s, request.prompt_tokens, options, plan);
          }
        });
    std::vector<double> ttft_s;
    for (size_t r = 0; r < load.requests.size(); ++r) {
      if (load.only_at[r] < 0) ttft_s.push_back(run.outcomes[r].end_s - load.requests[r].arrival_s);
    }
    return {Percentile(&ttft_s, 0.5), Percentile(&ttft_s, 0.99)};
  }

  const Setup setup_;
  const LatencyModel model_;
  const Cluster cluster_;
  const LengthDistribution lengths_;
  const int64_t requests_;
  const int seeds_;
};

// A load is sustained while P50 and P99 are at most 25 times those of a light load (section 7.2).
void Print(const Bench& bench, const Setup& setup, int64_t requests, int seeds) {
  std::printf("| %s | %s |", bench.name, setup.name);
  for (const char* trace : {"short", "medium", "long"}) {
    const Experiment experiment(bench, setup, trace, requests, seeds);
    const double capacity = experiment.Capacity();
    const Experiment::Row light = experiment.At(0.02 * capacity);
    double most50 = 1;
    double most99 = 1;
    int at50 = 0;
    Experiment::Row row50 = light;
    for (int percent = 50; percent <= 110; percent += 5) {
      const Experiment::Row row = experiment.At(capacity * percent / 100);
      if (row.tetris.p50_s > 25 * light.tetris.p50_s) break;
      if (row.tetris.p99_s > 25 * light.tetris.p99_s) break;
      most99 = std::max(most99, row.Slowdown99());
      if (row.Slowdown50() <= most50) continue;
      most50 = row.Slowdown50();
      at50 = percent;
      row50 = row;
    }
    std::printf(" **%.2f** / %.2f | %d %%: %.2f, %.2f |", most50, most99, at50, row50.tetris.p50_s,
                row50.single.p50_s);
    std::fflush(stdout);
  }
  std::printf("\n");
}

int Main(int argc, char** argv) {
  const int64_t requests = argc > 1 ? std::atoll(argv[1]) : 4000;
  const int seeds = argc > 2 ? std::atoi(argv[2]) : 3;
  const Bench benches[] = {{"8B", &Llama3_8bA100(), {16, 8}},
                           {"70B", &Llama3_70bA100Tp4(), {8, 2}}};
  std::printf(
      "| model | set-up | short: P50 / P99, up to | at load: P50 s, tetris, single |"
      " medium | at | long | at |\n|---|---|---|---|---|---|---|---|\n");
  for (const Bench& bench : benches) {
    const std::vector<Setup> setups = {
        {.name = "as the paper says; c = 2 d"},
        {.name = "c = 4 d", .c_over_d = 4},
        {.name = "c = d", .c_over_d = 1},
        {.name = "c = d / 2", .c_over_d = 0.5},
        {.name = "c = 0", .c_over_d = 0},
        {.name = "a twice", .constant = 2},
        {.name = "a = 0", .constant = 0},
        {.name = "improvement rate 0.05 at all loads", .rate = 0.05},
        {.name = "improvement rate 0.15 at all loads", .rate = 0.15},
        {.name = "nodes of half the size", .node_size = bench.cluster.node_size / 2},
        {.name = "one node", .node_size = bench.cluster.instances},
        {.name = "twice the instances", .nodes = 2},
        {.name = "prompts half as long", .lengths = 0.5},
        {.name = "prompts twice as long", .lengths = 2},
        {.name = "bursts of 4", .burst = 4},
        {.name = "10 % of the time occupied", .occupied = 0.1},
        {.name = "30 % occupied", .occupied = 0.3},
        {.name = "30 % occupied, by pieces of 64,000 tokens",
         .occupied = 0.3,
         .other_tokens = 64'000},
        {.name = "c = d, 10 % occupied", .c_over_d = 1, .occupied = 0.1},
        {.name = "c = d, 30 % occupied", .c_over_d = 1, .occupied = 0.3},
        {.name = "c = d / 2, 30 % occupied", .c_over_d = 0.5, .occupied = 0.3},
        {.name = "c = 0, 30 % occupied", .c_over_d = 0, .occupied = 0.3},
    };
    for (const Setup& setup : setups) Print(bench, setup, requests, seeds);
  }
  return 0;
}

}  // namespace
}  // namespace skein::scheduler

int main(int argc, char** argv) { return skein::scheduler::Main(argc, argv); }
