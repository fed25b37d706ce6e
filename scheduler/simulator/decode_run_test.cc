#include "scheduler/simulator/decode_run.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

DecodeOptions Simple() {
  DecodeOptions options;
  options.instances = 1;
  options.blocks = 100;
  options.block_tokens = 10;
  options.step_base_s = 1;
  options.step_per_sequence_s = 0.1;
  options.step_per_kv_token_s = 0.001;
  return options;
}

TEST(Histogram, IsWithinHalfAPercent) {
  TimeHistogram histogram;
  std::vector<double> values;
  for (int i = 1; i <= 1000; ++i) {
    values.push_back(i * 1e-3);
    histogram.Add(i * 1e-3, 1);
  }
  for (const double fraction : {0.01, 0.5, 0.99, 1.0}) {
    EXPECT_NEAR(histogram.Percentile(fraction) / Percentile(&values, fraction), 1, 0.006);
  }
  TimeHistogram rising;
  rising.AddRising(1e-3, 1e-3, 1000, 1);
  EXPECT_EQ(rising.count(), 1000);
  EXPECT_NEAR(rising.Percentile(0.5) / 0.5, 1, 0.02);
  EXPECT_EQ(TimeHistogram().Percentile(0.5), 0);
}

TEST(Decode, OneRequestTakesItsSteps) {
  // Three steps after the first token: 100, 101, 102 tokens of KV.
  const DecodeRun run = RunDecode({{0, 100, 4}}, {{1, 2}}, Simple());
  EXPECT_NEAR(run.end_s, 2 + 3 * 1.1 + 0.303, 1e-9);
  EXPECT_EQ(run.tbt.count(), 3);
  EXPECT_EQ(run.finished, 1);
}

TEST(Decode, GapsGrowWithTheKv) {
  // 399 gaps from 1.1 + 0.1 s (100 tokens of KV) to 1.1 + 0.498 s.
  const DecodeRun run = RunDecode({{0, 100, 400}}, {{1, 2}}, Simple());
  EXPECT_NEAR(run.tbt.Percentile(0.5) / (1.1 + 0.299), 1, 0.006);
  EXPECT_NEAR(run.tbt.Percentile(1) / (1.1 + 0.498), 1, 0.006);
}

TEST(Decode, JoinsAtAStepBoundary) {
  // The second is prefilled in the middle of the first one's first step (2 ... 3.2).
  const DecodeRun run = RunDecode({{0, 100, 3}, {0, 100, 2}}, {{1, 2}, {1, 2.5}}, Simple());
  const double second_step_s = 1 + 0.2 + 0.001 * 201;
  EXPECT_NEAR(run.end_s, 3.2 + second_step_s, 1e-9);
  EXPECT_EQ(run.tbt.count(), 3);
  EXPECT_NEAR(run.tbt.Percentile(1), 0.7 + second_step_s, 0.02);
}

// Ended sequences do not slow down others.
TEST(Decode, EqualRequestsOneAfterTheOtherTakeTheSameTime) {
  const DecodeRun run = RunDecode({{0, 100, 4}, {0, 100, 4}}, {{1, 2}, {20, 21}}, Simple());
  const double seconds = 3 * 1.1 + 0.303;
  EXPECT_NEAR(run.end_s, 21 + seconds, 1e-9);
  EXPECT_NEAR(run.busy_instance_s, 2 * seconds, 1e-9);
}

TEST(Decode, WaitsForRoom) {
  // 60 of 100 blocks each: the second is placed after the first has ended.
  const DecodeRun run = RunDecode({{0, 599, 1}, {0, 598, 2}}, {{0, 5}, {0, 1}}, Simple());
  EXPECT_EQ(run.finished, 2);
  EXPECT_NEAR(run.blocked_s, 4, 1e-9);
  EXPECT_NEAR(run.end_s, 5 + 1.1 + 0.598, 1e-9);
}

TEST(Decode, NamesWhatNoInstanceHolds) {
  EXPECT_TRUE(CheckDecode(Simple(), {{0, 990, 10}}).ok());
  EXPECT_NE(
      std::string(CheckDecode(Simple(), {{0, 1, 1}, {0, 990, 11}}).message()).find("request 1"),
      std::string::npos);
  DecodeOptions none = Simple();
  none.instances = 0;
  EXPECT_NE(std::string(CheckDecode(none, {}).message()).find("decode_instances"),
            std::string::npos);
}

// No request is lost, whatever the capacity.
TEST(Decode, FinishesEveryRequest) {
  Random random(2);
  for (int round = 0; round < 30; ++round) {
    DecodeOptions options = Simple();
    options.instances = 1 + static_cast<int>(random.Below(4));
    std::vector<SimRequest> requests;
    std::vector<PrefillOutcome> outcomes;
    int64_t gaps = 0;
    for (int i = 0; i < 200; ++i) {
      const double start_s = random.Uniform() * 500;
      requests.push_back(
          {0, 1 + static_cast<int64_t>(random.Below(900)), static_cast<int64_t>(random.Below(90))});
      outcomes.push_back({start_s, start_s + random.Uniform() * 20});
      gaps += std::max<int64_t>(0, requests.back().output_tokens - 1);
    }
    ASSERT_TRUE(CheckDecode(options, requests).ok());
    const DecodeRun run = RunDecode(requests, outcomes, options);
    EXPECT_EQ(run.finished, 200);
    EXPECT_EQ(run.tbt.count(), gaps);
  }
}

}  // namespace
}  // namespace skein::scheduler
