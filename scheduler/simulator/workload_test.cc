#include "scheduler/simulator/workload.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

TEST(Random, GivesTheSameNumbersEverywhere) {
  Random random(1);  // the published SplitMix64
  EXPECT_EQ(random.Next(), 0x910A2DEC89025CC1u);
  EXPECT_EQ(random.Next(), 0xBEEB8DA1658EEC67u);
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double x = random.Normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.02);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
}

TEST(LengthDistribution, MeetsThePapersRangesAndMeans) {
  const struct {
    const char* name;
    double min, max, mean;
  } traces[] = {
      {"short", 4e3, 95e3, 23.6e3}, {"medium", 8e3, 142e3, 32.8e3}, {"long", 16e3, 190e3, 50.1e3}};
  for (const auto& trace : traces) {
    const auto lengths = LengthDistribution::OfPaper(trace.name);
    ASSERT_TRUE(lengths.ok());
    EXPECT_NEAR(lengths->Mean(), trace.mean, 1);
    Random random(5);
    double sum = 0;
    for (int i = 0; i < 200'000; ++i) {
      const auto length = static_cast<double>(lengths->Sample(&random));
      EXPECT_GE(length, trace.min);
      EXPECT_LE(length, trace.max);
      sum += length;
    }
    EXPECT_NEAR(sum / 2e5, trace.mean, trace.mean * 0.01);
  }
  EXPECT_EQ(LengthDistribution::OfPaper("huge").status().code(), absl::StatusCode::kNotFound);
}

TEST(Workload, ArrivesAtTheRateAndDependsOnTheSeedOnly) {
  const auto lengths = *LengthDistribution::OfPaper("short");
  const auto outputs = LengthDistribution::Outputs();
  const auto once = GenerateWorkload(lengths, outputs, {4, 20'000, 1, 9});
  EXPECT_NEAR(MeanRate(once), 4, 0.1);
  EXPECT_TRUE(CheckWorkload(once).ok());
  EXPECT_EQ(once, GenerateWorkload(lengths, outputs, {4, 20'000, 1, 9}));
  EXPECT_NE(once, GenerateWorkload(lengths, outputs, {4, 20'000, 1, 10}));
  // At another rate the same requests arrive.
  const auto slower = GenerateWorkload(lengths, outputs, {1, 20'000, 1, 9});
  EXPECT_EQ(slower[777].prompt_tokens, once[777].prompt_tokens);
  EXPECT_NEAR(slower[777].arrival_s, 4 * once[777].arrival_s, 1e-5);
}

TEST(Workload, BurstsArriveTogether) {
  const auto lengths = *LengthDistribution::OfPaper("short");
  const auto burst = GenerateWorkload(lengths, lengths, {4, 20'000, 10, 9});
  EXPECT_NEAR(MeanRate(burst), 4, 0.3);
  for (size_t i = 0; i < burst.size(); ++i) {
    EXPECT_EQ(burst[i].arrival_s, burst[i - i % 10].arrival_s);
  }
}

TEST(Workload, ResamplesAllOfTheSample) {
  const std::vector<SimRequest> sample = {{0, 1, 9}, {0, 2, 8}, {0, 3, 7}, {0, 4, 6}};
  const auto requests = ResampleWorkload(sample, {4, 4000, 1, 9});
  std::vector<int> drawn(4, 0);
  for (const SimRequest& request : requests) {
    EXPECT_EQ(request.prompt_tokens + request.output_tokens, 10) << "lengths stay together";
    ++drawn[static_cast<size_t>(request.prompt_tokens - 1)];
  }
  for (const int count : drawn) EXPECT_NEAR(count, 1000, 150);
  EXPECT_NEAR(MeanRate(requests), 4, 0.3);
}

TEST(Workload, RescalesToARate) {
  std::vector<SimRequest> requests = {{5, 1, 1}, {6, 1, 1}, {9, 1, 1}};
  ASSERT_TRUE(RescaleToRate(1, &requests).ok());
  EXPECT_EQ(requests[0].arrival_s, 0);
  EXPECT_DOUBLE_EQ(requests[1].arrival_s, 0.5);
  EXPECT_DOUBLE_EQ(requests[2].arrival_s, 2);
  std::vector<SimRequest> together = {{5, 1, 1}, {5, 1, 1}};
  EXPECT_FALSE(RescaleToRate(1, &together).ok());
}

TEST(Workload, ChecksNameTheField) {
  const auto message = [](std::vector<SimRequest> requests) {
    return std::string(CheckWorkload(requests).message());
  };
  EXPECT_EQ(message({}), "requests: none");
  EXPECT_EQ(message({{0, 1, 1}, {-1, 1, 1}}), "request 1: arrival_s");
  EXPECT_EQ(message({{std::numeric_limits<double>::quiet_NaN(), 1, 1}}), "request 0: arrival_s");
  EXPECT_EQ(message({{0, 0, 1}}), "request 0: prompt_tokens");
  EXPECT_EQ(message({{0, 1, -1}}), "request 0: output_tokens");
}

}  // namespace
}  // namespace skein::scheduler
