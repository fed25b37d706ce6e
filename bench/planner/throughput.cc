// Throughput under a limit of the TTFT: Tetris's figure 10. For each trace and policy: the highest
// rate at which P50 and P99 TTFT are at most 25 times those of a light load (greedy's), the tokens
// a second of prompts and outputs at that rate, and Tetris's over them.
//
//   bazel run --config=opt //bench/planner:throughput [-- REQUESTS]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "scheduler/plan/latency/builtin_models.h"
#include "scheduler/simulator/rate_profiler.h"
#include "scheduler/simulator/simulator.h"

namespace skein::scheduler {
namespace {

struct Bench {
  const char* name;
  const LatencyModel* model;
  Cluster cluster;
  DecodeOptions decode;
  std::vector<const char*> policies;  // tetris first
};

class Experiment {
 public:
  Experiment(const Bench& bench, const char* trace, int64_t requests)
      : bench_(bench), lengths_(*LengthDistribution::OfPaper(trace)), requests_(requests) {
    light_ = At("greedy", 0.01);
  }

  SimulationResult At(const char* policy, double rate) const {
    const auto load = [&](double requests_per_s, uint64_t seed) {
      return GenerateWorkload(lengths_, LengthDistribution::Outputs(),
                              {requests_per_s, requests_, 1, seed});
    };
    Tuning tuning;
    if (std::string(policy) == "tetris") {
      tuning.improvement_rates =
          ProfileLoads(
              {rate}, [&](double requests_per_s, int) { return load(requests_per_s, 900); },
              *bench_.model, bench_.cluster, false)
              .tuning.improvement_rates;
    }
    return Simulate(*Policy::Parse(policy), load(rate, 1), *bench_.model, bench_.cluster, tuning,
                    bench_.decode);
  }

  // To a hundredth; the rates in between are sustained, too.
  double Highest(const char* policy) const {
    double low = 0.01;
    double high = 0.02;
    while (Sustained(policy, high)) {
      low = high;
      high *= 1.5;
    }
    while (high / low > 1.01) {
      const double middle = (low + high) / 2;
      (Sustained(policy, middle) ? low : high) = middle;
    }
    return low;
  }

 private:
  bool Sustained(const char* policy, double rate) const {
    const SimulationResult result = At(policy, rate);
    return result.ttft_p50_s <= 25 * light_.ttft_p50_s &&
           result.ttft_p99_s <= 25 * light_.ttft_p99_s;
  }

  const Bench& bench_;
  const LengthDistribution lengths_;
  const int64_t requests_;
  SimulationResult light_;
};

int Main(int argc, char** argv) {
  const int64_t requests = argc > 1 ? std::atoll(argv[1]) : 4000;
  // As services/codec's profile llama3-70b-a100-tp4.
  const DecodeOptions decode70b{.instances = 8,
                                .blocks = 28'000,
                                .step_base_s = 28.2e-3,
                                .step_per_kv_token_s = 5.5e-8,
                                .step_weights_s = 23.5e-3,
                                .prefill_instances = 1};
  const Bench benches[] = {
      {"8B",
       &Llama3_8bA100(),
       {16, 8},
       {},
       {"tetris", "fixed8", "fixed16", "greedy", "loongserve", "pipeline8", "pipeline16"}},
      {"70B",
       &Llama3_70bA100Tp4(),
       {8, 2},
       decode70b,
       {"tetris", "fixed8", "greedy", "loongserve", "pipeline8"}}};
  std::printf(
      "| model | trace | policy | highest rate | tokens/s | tetris over it |\n"
      "|---|---|---|---|---|---|\n");
  for (const Bench& bench : benches) {
    for (const char* trace : {"short", "medium", "long"}) {
      const Experiment experiment(bench, trace, requests);
      double of_tetris = 0;
      for (const char* policy : bench.policies) {
        const double rate = experiment.Highest(policy);
        const double tokens = experiment.At(policy, rate).throughput_tokens_per_s;
        if (of_tetris == 0) of_tetris = tokens;
        std::printf("| %s | %s | %s | %.2f | %.0f | %.2f |\n", bench.name, trace, policy, rate,
                    tokens, of_tetris / tokens);
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace skein::scheduler

int main(int argc, char** argv) { return skein::scheduler::Main(argc, argv); }
