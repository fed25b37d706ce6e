#include "scheduler/simulator/offline/offline_job.h"

#include <deque>
#include <string>

#include <gtest/gtest.h>
#include "scheduler/simulator/offline/rank_batch.h"

namespace skein::scheduler {
namespace {

OfflineProfile Profile(int64_t tp, double memory_share = 0.9) {
  return MakeOfflineProfile(*FindOfflineModel("llama-3.1-70b"), *FindOfflineDevice("h20"),
                            memory_share, tp);
}
std::vector<OfflineRequest> Requests(int64_t count) {
  return GenerateOfflineLoad({.requests = count, .prompt_mean = 200, .output_mean = 100});
}

TEST(RankBatch, RunsPromptsInSlicesThenDecodesToTheEnd) {
  RankBatch batch({.kv_tokens = 100, .sequences = 4, .step_tokens = 8});
  std::deque<OfflineRequest> waiting = {{10, 2}};
  batch.Admit(&waiting);
  EXPECT_EQ(batch.NextStep().tokens, 8);
  EXPECT_EQ(batch.StepEnded(&waiting), 0);
  EXPECT_EQ(batch.NextStep().tokens, 2);
  EXPECT_EQ(batch.StepEnded(&waiting), 1);
  EXPECT_EQ(batch.NextStep().decode_context, 10);
  EXPECT_EQ(batch.StepEnded(&waiting), 1);
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(batch.NextStep().tokens, 0);
}

TEST(RankBatch, PreemptsTheYoungestAndLosesNoToken) {
  RankBatch batch({.kv_tokens = 24, .sequences = 4, .step_tokens = 64});
  std::deque<OfflineRequest> waiting = {{8, 10}, {8, 10}};
  int64_t made = 0;
  for (int step = 0; step < 100 && !(batch.empty() && waiting.empty()); ++step) {
    batch.Admit(&waiting);
    made += batch.StepEnded(&waiting);
  }
  EXPECT_EQ(made, 20);
  EXPECT_GT(batch.preempted(), 0);
}

TEST(OfflineLoad, HasTheMeansAndIsTheSameForASeed) {
  const OfflineLoad load = {.requests = 20000, .prompt_mean = 500, .output_mean = 300, .seed = 3};
  double prompts = 0, outputs = 0;
  for (const OfflineRequest& one : GenerateOfflineLoad(load)) {
    prompts += static_cast<double>(one.prompt);
    outputs += static_cast<double>(one.output);
  }
  EXPECT_NEAR(prompts / 20000, 500, 10);
  EXPECT_NEAR(outputs / 20000, 300, 10);
  EXPECT_EQ(GenerateOfflineLoad(load)[7].output, GenerateOfflineLoad(load)[7].output);
  EXPECT_EQ(CheckOfflineLoad({.requests = 0}).message(), "requests: 0 is not in 1 to 10000000");
  EXPECT_EQ(CheckOfflineLoad({.sigma = 4}).message(), "sigma: 4 is not in 0 to 3");
}

TEST(OfflineJob, EveryStrategyMakesEveryToken) {
  const std::vector<OfflineRequest> requests = Requests(300);
  double outputs = 0;
  for (const OfflineRequest& one : requests) outputs += static_cast<double>(one.output);
  SharedSteps steps(Profile(2), {.ranks = 4});
  for (const Batching batching : {Batching::kFixed, Batching::kAdaptive}) {
    for (const OfflineStrategy strategy : {OfflineStrategy::kFull, OfflineStrategy::kWas,
                                           OfflineStrategy::kCas, OfflineStrategy::kSwitched}) {
      const OfflineJob job = {
          .strategy = strategy, .batching = batching, .threshold = steps.Threshold(250)};
      ASSERT_TRUE(CheckOfflineJob(Profile(2), 4, job, requests).ok());
      const OfflineJobResult result = RunOfflineJob(&steps, job, requests);
      EXPECT_NEAR(result.output_tokens_per_s * result.seconds, outputs, 0.5);
      if (strategy == OfflineStrategy::kSwitched) continue;
      EXPECT_EQ(result.CasShare(), strategy == OfflineStrategy::kCas ? 1 : 0);
    }
  }
}

TEST(OfflineJob, SwitchesToCasAtTheTailAndGainsFromIt) {
  const std::vector<OfflineRequest> requests = Requests(1500);
  SharedSteps steps(Profile(2), {.ranks = 4});
  OfflineJob job = {.strategy = OfflineStrategy::kWas, .min_dwell_s = 1};
  job.threshold = steps.Threshold(250);
  const double was_s = RunOfflineJob(&steps, job, requests).seconds;
  job.strategy = OfflineStrategy::kSwitched;
  const OfflineJobResult switched = RunOfflineJob(&steps, job, requests);
  EXPECT_LT(switched.seconds, was_s);
  EXPECT_GE(switched.switches, 1);
  EXPECT_LE(switched.switches, 2);
  EXPECT_GT(switched.CasShare(), 0);
  EXPECT_LT(switched.CasShare(), 1);
}

TEST(OfflineJob, OneRankIsTheSameInAllStrategies) {
  const std::vector<OfflineRequest> requests = Requests(100);
  SharedSteps steps(Profile(8), {.ranks = 1});
  const auto seconds = [&](OfflineStrategy strategy) {
    return RunOfflineJob(&steps, {.strategy = strategy}, requests).seconds;
  };
  EXPECT_DOUBLE_EQ(seconds(OfflineStrategy::kWas), seconds(OfflineStrategy::kFull));
  EXPECT_DOUBLE_EQ(seconds(OfflineStrategy::kCas), seconds(OfflineStrategy::kFull));
}

TEST(OfflineJob, RefusesWhatDoesNotFitWithTheNumbers) {
  const absl::Status weights = CheckOfflineJob(Profile(1), 8, {}, Requests(1));
  EXPECT_EQ(weights.message(),
            "usable_bytes: 1.296e+11 of each of 1 devices do not hold an instance's weights");
  const absl::Status tokens = CheckOfflineJob(Profile(2, 0.55), 4, {}, {{60000, 1000}});
  EXPECT_NE(tokens.message().find("a request has 61000 tokens"), std::string::npos) << tokens;
}

}  // namespace
}  // namespace skein::scheduler
