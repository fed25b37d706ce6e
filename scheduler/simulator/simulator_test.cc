#include "scheduler/simulator/simulator.h"

#include <algorithm>
#include <string_view>

#include <gtest/gtest.h>
#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/plan/latency/builtin_models.h"
#include "scheduler/simulator/rate_profiler.h"

namespace skein::scheduler {
namespace {

const char* const kAll[] = {"tetris", "single", "greedy", "fixed8", "fixed16", "rolling"};
constexpr Cluster kCluster = {16, 8};

std::vector<SimRequest> Load(const char* trace, double rate, int64_t requests, uint64_t seed) {
  return GenerateWorkload(*LengthDistribution::OfPaper(trace), LengthDistribution::Outputs(),
                          {rate, requests, 1, seed});
}

SimulationResult Simulated(const char* policy, const std::vector<SimRequest>& requests,
                           const Tuning& tuning = {}) {
  return Simulate(*Policy::Parse(policy), requests, Llama3_8bA100(), kCluster, tuning, {});
}

TEST(Policy, IsParsedOrNamed) {
  EXPECT_EQ(Policy::Parse("fixed4")->sp, 4);
  for (const char* name : {"", "fixed", "fixed0", "fixed-8", "fixedx", "Tetris", "roll"}) {
    EXPECT_EQ(Policy::Parse(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
  const LatencyModel& model = Llama3_8bA100();
  EXPECT_TRUE(CheckPolicy(*Policy::Parse("fixed16"), model, kCluster).ok());
  EXPECT_FALSE(CheckPolicy(*Policy::Parse("fixed16"), model, {8, 8}).ok());
  EXPECT_FALSE(CheckPolicy(*Policy::Parse("fixed3"), model, kCluster).ok());
}

TEST(Policy, BaselinesOfOtherSystemsAreParsedOrNamed) {
  const LatencyModel& model = Llama3_8bA100();
  const Policy fixed = *Policy::Parse("pipeline4");
  EXPECT_EQ(fixed.stages, 4);
  EXPECT_FALSE(fixed.dynamic);
  const Policy dynamic = *Policy::Parse("pipeline16dynamic");
  EXPECT_EQ(dynamic.stages, 16);
  EXPECT_TRUE(dynamic.dynamic);
  EXPECT_TRUE(dynamic.SimulatedOnly() && Policy::Parse("loongserve")->SimulatedOnly());
  EXPECT_FALSE(Policy::Parse("fixed4")->SimulatedOnly());
  EXPECT_TRUE(CheckPolicy(dynamic, model, kCluster).ok());
  EXPECT_FALSE(CheckPolicy(dynamic, model, {15, 8}).ok());
  EXPECT_FALSE(CheckPolicy(fixed, *LatencyModel::Make({{2, {0, 1, 0, 0}}}), kCluster).ok());
  for (const char* name : {"pipeline", "pipeline0", "pipelinedynamic", "pipeline4x", "loong"}) {
    EXPECT_EQ(Policy::Parse(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

// They serve the same requests, and a prompt alone takes what their headers say.
TEST(Simulator, RunsTheBaselinesOfOtherSystems) {
  const LatencyModel& model = Llama3_8bA100();
  EXPECT_NEAR(Simulated("loongserve", {{1, 128'000, 1}}).ttft_p50_s, model.Seconds(16, 0, 128'000),
              1e-9);
  EXPECT_NEAR(Simulated("pipeline16", {{1, 4096, 1}}).ttft_p50_s, model.Seconds(1, 0, 4096), 1e-9);
  const std::vector<SimRequest> requests = Load("short", 3, 400, 8);
  for (const char* policy : {"loongserve", "pipeline4", "pipeline16", "pipeline4dynamic"}) {
    const SimulationResult result = Simulated(policy, requests);
    EXPECT_EQ(result.ttft_s, Simulated(policy, requests).ttft_s) << policy;
    EXPECT_EQ(result.requests, 400) << policy;
    EXPECT_GT(result.utilisation, 0) << policy;
    EXPECT_LE(result.utilisation, 1) << policy;
    EXPECT_LE(result.decode_utilisation, 1) << policy;
    EXPECT_GT(result.tbt_p50_s, 0) << policy;
  }
}

// With no other requests, the prediction is exact.
TEST(Simulator, AgreesWithThePredictionOfALoneRequest) {
  CdspPlanner planner(Llama3_8bA100(), kCluster);
  const std::vector<double> idle(16, 0);
  PrefillPlan plan;
  for (const int64_t tokens : {1, 5000, 33'000, 128'000, 400'000}) {
    planner.Plan(idle, tokens, {}, &plan);
    Tuning tuning;
    tuning.improvement_rates = ImprovementRateTable::Constant(0);
    EXPECT_NEAR(Simulated("tetris", {{3, tokens, 1}}, tuning).ttft_p50_s, plan.ttft_s, 1e-6);
  }
}

// The executor starts chunks when their instances are free, not at planned times; the two agree
// behind a queue, too.
TEST(Simulator, AgreesWithThePredictionBehindAQueue) {
  const std::vector<SimRequest> requests = Load("medium", 4, 300, 5);
  CdspPlanner planner(Llama3_8bA100(), kCluster);
  std::vector<double> predicted_s;
  const PrefillRun run = RunCommitting(
      requests, Llama3_8bA100(), kCluster,
      [&](const SimRequest& request, absl::Span<const double> queue_s, PrefillPlan* plan) {
        planner.Plan(queue_s, request.prompt_tokens, {}, plan);
        predicted_s.push_back(plan->ttft_s);
      });
  const std::vector<double> ttft_s = TtftSeconds(requests, run);
  for (size_t r = 0; r < requests.size(); ++r) EXPECT_NEAR(ttft_s[r], predicted_s[r], 1e-6);
}

TEST(Simulator, IsDeterministic) {
  const std::vector<SimRequest> requests = Load("short", 4, 400, 8);
  for (const char* policy : kAll) {
    const SimulationResult once = Simulated(policy, requests);
    const SimulationResult again = Simulated(policy, requests);
    EXPECT_EQ(once.ttft_s, again.ttft_s) << policy;
    EXPECT_EQ(once.tbt_p99_s, again.tbt_p99_s) << policy;
  }
}

// Busy time equals the chunks' time, each request is served once, and none is faster than possible.
TEST(Simulator, ConservesWork) {
  const std::vector<SimRequest> requests = Load("long", 1.5, 300, 4);
  for (const char* policy : kAll) {
    double busy_s = 0;
    std::vector<int64_t> tokens(requests.size(), 0);
    const PrefillRun run = RunPolicy(*Policy::Parse(policy), requests, Llama3_8bA100(), kCluster,
                                     {}, [&](size_t request, const ChunkPlan& chunk) {
                                       tokens[request] += chunk.tokens;
                                       busy_s += static_cast<double>(chunk.instances.size()) *
                                                 (chunk.end_s - chunk.start_s);
                                     });
    EXPECT_NEAR(run.busy_instance_s, busy_s, 1e-6) << policy;
    EXPECT_LE(busy_s, 16 * run.end_s) << policy;
    for (size_t r = 0; r < requests.size(); ++r) {
      EXPECT_EQ(tokens[r], requests[r].prompt_tokens) << policy;
      double shortest_s = 1e9;
      for (const int sp : Llama3_8bA100().sp_sizes()) {
        shortest_s = std::min(shortest_s, Llama3_8bA100().Seconds(sp, 0, tokens[r]));
      }
      EXPECT_GE(run.outcomes[r].end_s - requests[r].arrival_s, shortest_s - 1e-6) << policy;
    }
  }
}

TEST(Simulator, ReportsWhatItMeans) {
  const SimulationResult result = Simulated("fixed8", {{0, 32'000, 11}, {10, 32'000, 11}});
  const double seconds = Llama3_8bA100().Seconds(8, 0, 32'000);
  EXPECT_NEAR(result.ttft_p50_s, seconds, 1e-9);
  EXPECT_NEAR(result.queue_mean_s, 0, 1e-9);
  EXPECT_NEAR(result.utilisation, 2 * 8 * seconds / (16 * (10 + seconds)), 1e-9);
  EXPECT_NEAR(result.idle_s, 10 + seconds - seconds, 1e-9);
  EXPECT_GT(result.tbt_p50_s, 6e-3);
  EXPECT_EQ(result.requests, 2);
  const DecodeOptions decode;
  const double steps_s = 10 * (decode.step_base_s + decode.step_per_sequence_s) +
                         decode.step_per_kv_token_s * (10 * 32'000 + 45);
  const double span_s = 10 + seconds + steps_s;  // until the last token
  EXPECT_NEAR(result.throughput_tokens_per_s, 2 * 32'011 / span_s, 1e-6);
  EXPECT_NEAR(result.decode_utilisation, 2 * steps_s / (2 * span_s), 1e-9);
  EXPECT_NEAR(result.requests_per_s, 0.1, 1e-9);
}

// The run ends with the prefill that ends last, whichever arrived last.
TEST(Simulator, TheRunEndsWithTheLastToEnd) {
  const std::vector<SimRequest> requests = {{0, 100'000, 1}, {0.1, 1000, 1}};
  for (const char* policy : kAll) {
    const PrefillRun run =
        RunPolicy(*Policy::Parse(policy), requests, Llama3_8bA100(), kCluster, {});
    EXPECT_EQ(run.end_s, std::max(run.outcomes[0].end_s, run.outcomes[1].end_s)) << policy;
    if (policy != std::string_view("fixed8")) continue;
    EXPECT_GT(run.outcomes[0].end_s, run.outcomes[1].end_s) << "on separate groups";
  }
}

// The basis of the distribution plot: percentiles read it and leave it in order.
TEST(Simulator, GivesTheTimesToFirstTokenInOrder) {
  const SimulationResult result = Simulated("tetris", Load("short", 4, 600, 1));
  ASSERT_EQ(result.ttft_s.size(), 600u);
  EXPECT_TRUE(std::is_sorted(result.ttft_s.begin(), result.ttft_s.end()));
  EXPECT_EQ(result.ttft_p50_s, result.ttft_s[299]);
  EXPECT_EQ(result.ttft_p99_s, result.ttft_s[593]);
}

// The rolling planner, tuned on other requests, against all others on the same ones. The bounds
// allow for the noise of 800 requests: the 99th percentile is the ninth longest.
TEST(Rolling, IsNotWorseThanAnyOther) {
  const std::pair<const char*, double> loads[] = {{"short", 0.5}, {"medium", 3}, {"long", 1.75}};
  for (const auto& [trace, load] : loads) {
    const auto workload = [trace = trace](double rate, int round) {
      return Load(trace, rate, 500, 100 + static_cast<uint64_t>(round));
    };
    const Tuning tuning =
        ProfileLoads({load}, workload, Llama3_8bA100(), kCluster, /*tune_rolling=*/true).tuning;
    const std::vector<SimRequest> requests = Load(trace, load, 800, 2);
    const SimulationResult rolling = Simulated("rolling", requests, tuning);
    for (const char* policy : kAll) {
      const SimulationResult other = Simulated(policy, requests, tuning);
      EXPECT_LE(rolling.ttft_p50_s, 1.03 * other.ttft_p50_s) << policy << trace << load;
      EXPECT_LE(rolling.ttft_p99_s, 1.05 * other.ttft_p99_s) << policy << trace << load;
      if (load < 1 || policy == std::string_view("rolling")) continue;  // far better under load
      EXPECT_LE(rolling.ttft_p50_s, 0.85 * other.ttft_p50_s) << policy << trace << load;
    }
  }
}

// In a baseline's mode the rolling planner gives exactly the baseline's results.
TEST(Rolling, DoesExactlyAsABaselineInItsMode) {
  using Kind = CommitMode::Kind;
  constexpr double kRate = 0.35;
  const std::pair<const char*, CommitMode> modes[] = {{"tetris", {Kind::kTetris, kRate, 0}},
                                                      {"single", {Kind::kSingle, kRate, 0}},
                                                      {"greedy", {Kind::kSingle, 0, 0}},
                                                      {"fixed8", {Kind::kFixed, 0, 8}},
                                                      {"fixed16", {Kind::kFixed, 0, 16}}};
  for (const double load : {0.3, 1.8, 4.0}) {
    std::vector<SimRequest> requests = Load("long", load, 500, 6);
    requests[7].arrival_s = requests[6].arrival_s;  // two at once
    for (const auto& [policy, mode] : modes) {
      Tuning tuning;
      tuning.improvement_rates = ImprovementRateTable::Constant(kRate);
      RollingTuning rolling_tuning;
      rolling_tuning.commit = mode;
      tuning.rolling = RollingTable::Constant(rolling_tuning);
      const PrefillRun baseline =
          RunPolicy(*Policy::Parse(policy), requests, Llama3_8bA100(), kCluster, tuning);
      const PrefillRun rolling =
          RunPolicy(*Policy::Parse("rolling"), requests, Llama3_8bA100(), kCluster, tuning);
      EXPECT_EQ(rolling.chunks, baseline.chunks) << policy;
      for (size_t r = 0; r < requests.size(); ++r) {
        ASSERT_EQ(rolling.outcomes[r].start_s, baseline.outcomes[r].start_s) << policy << r;
        ASSERT_EQ(rolling.outcomes[r].end_s, baseline.outcomes[r].end_s) << policy << r;
      }
    }
  }
}

TEST(Profiler, RaisesTheRateWithTheLoad) {
  const auto workload = [](double load, int /*round*/) { return Load("short", load, 500, 3); };
  const Profile profile =
      ProfileLoads({0.5, 7}, workload, Llama3_8bA100(), kCluster, /*tune_rolling=*/false);
  EXPECT_EQ(profile.trials.size(), 2 * ImprovementRateCandidates().size());
  EXPECT_LT(profile.tuning.improvement_rates.RateAt(0.5),
            profile.tuning.improvement_rates.RateAt(7));
  for (const double load : {0.5, 7.0}) {
    const auto best = std::min_element(profile.trials.begin(), profile.trials.end(),
                                       [load](const auto& a, const auto& b) {
                                         if (a.requests_per_s != b.requests_per_s)
                                           return a.requests_per_s == load;
                                         return a.score.mean_s < b.score.mean_s;
                                       });
    EXPECT_EQ(profile.tuning.improvement_rates.RateAt(load), best->improvement_rate);
  }
}

}  // namespace
}  // namespace skein::scheduler
