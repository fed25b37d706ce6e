#include "scheduler/simulator/retune.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <string>

#include <gtest/gtest.h>
#include "scheduler/plan/latency/builtin_models.h"
#include "scheduler/simulator/rate_profiler.h"

namespace skein::scheduler {
namespace {

constexpr Cluster kCluster = {16, 8};
const auto kGoOn = [] { return false; };

// `count` prompts of a trace at a steady load.
void Arrive(const char* trace, double requests_per_s, int64_t count, PromptHistory* history,
            TimeUs* now) {
  const LengthDistribution lengths = *LengthDistribution::OfPaper(trace);
  Random random(7);
  for (int64_t i = 0; i < count; ++i) {
    history->OnArrival(lengths.Sample(&random), *now);
    *now += static_cast<TimeUs>(kSecondUs / requests_per_s);
  }
}

TEST(PromptHistory, KeepsAllLengthsUntilItIsFull) {
  PromptHistory history;
  std::vector<int64_t> all;
  for (int64_t i = 1; i <= 500; ++i) {
    history.OnArrival(i, i);
    all.push_back(i);
  }
  history.OnArrival(0, 500);
  history.OnArrival(-3, 500);
  EXPECT_EQ(history.lengths(), all);
  EXPECT_EQ(history.prompts(), 500);
  history.Clear();
  EXPECT_EQ(history.prompts(), 0);
  EXPECT_TRUE(history.lengths().empty());
  EXPECT_TRUE(history.Loads().empty());
}

// Every prompt is in the sample with the same probability: the sample's mean is that of all, also
// when lengths grow all the time. Nothing grows beyond its bound.
TEST(PromptHistory, IsAFairSampleOfBoundedSize) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    PromptHistory history(seed);
    constexpr int64_t kCount = 100'000;
    for (int64_t i = 1; i <= kCount; ++i) history.OnArrival(i, i * 1000);
    ASSERT_EQ(history.lengths().size(), PromptHistory::kLengthsMax);
    EXPECT_EQ(history.prompts(), kCount);
    const double mean = std::accumulate(history.lengths().begin(), history.lengths().end(), 0.0) /
                        static_cast<double>(PromptHistory::kLengthsMax);
    // The standard error of the mean is 0.29 / sqrt(8192) = 0.3 % of the range.
    EXPECT_NEAR(mean / kCount, 0.5, 5 * 0.0032) << seed;
  }
}

// The windows' counts against a plain list of all arrivals.
TEST(PromptHistory, LoadsAreThoseOfWindowsWithArrivals) {
  Random random(3);
  for (int round = 0; round < 50; ++round) {
    PromptHistory history;
    TimeUs now = static_cast<TimeUs>(random.Below(1'000'000'000));
    TimeUs begin = kNever;
    std::map<int64_t, int64_t> windows;
    for (int i = 0; i < 2000; ++i) {
      // Sometimes a pause of several windows.
      now += random.Below(200) == 0 ? static_cast<TimeUs>(random.Below(300'000'000))
                                    : static_cast<TimeUs>(random.Below(2'000'000));
      if (begin == kNever) begin = now;
      history.OnArrival(100, now);
      ++windows[(now - begin) / PromptHistory::kWindowUs];
    }
    windows.erase(std::prev(windows.end()));  // in progress
    std::vector<double> loads;
    for (const auto& [window, count] : windows) {
      const double bin = std::round(4 * std::log2(static_cast<double>(count)));
      loads.push_back(std::exp2(bin / 4) / 30);
    }
    std::sort(loads.begin(), loads.end());
    loads.erase(std::unique(loads.begin(), loads.end()), loads.end());
    EXPECT_EQ(history.Loads(), loads);
  }
}

TEST(Retune, LoadsAreThinnedEvenlyAndKeepTheirEnds) {
  EXPECT_EQ(RetuneLoads({1, 2}), (std::vector<double>{1, 2}));
  EXPECT_TRUE(RetuneLoads({}).empty());
  std::vector<double> seen(100);
  std::iota(seen.begin(), seen.end(), 1.0);
  const std::vector<double> loads = RetuneLoads(seen);
  ASSERT_EQ(loads.size(), kRetuneRowsMax);
  EXPECT_EQ(loads.front(), 1);
  EXPECT_EQ(loads.back(), 100);
  EXPECT_TRUE(std::is_sorted(loads.begin(), loads.end()));
}

TEST(Retune, RefusesTooFewPromptsAndAnUnknownLoad) {
  PromptHistory history;
  TimeUs now = 0;
  Arrive("long", 2, kRetunePromptsMin - 1, &history, &now);
  const auto few = RetuneRates(history, Llama3_8bA100(), kCluster, kGoOn);
  EXPECT_EQ(few.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(few.status().message().find("999 prompts; 1000 are needed"), std::string::npos);
  PromptHistory sudden;
  for (int i = 0; i < kRetunePromptsMin; ++i) sudden.OnArrival(1000, i);
  EXPECT_EQ(RetuneRates(sudden, Llama3_8bA100(), kCluster, kGoOn).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// From samples of a distribution, the rows are those that the offline profiler finds with it, but
// for ties within the noise: the mean TTFT that they give is within 5 % of the best.
TEST(Retune, FindsWhatTheOfflineProfilerFinds) {
  PromptHistory history;
  TimeUs now = 0;
  Arrive("long", 0.5, 2000, &history, &now);
  Arrive("long", 2, 4000, &history, &now);
  const auto table = RetuneRates(history, Llama3_8bA100(), kCluster, kGoOn);
  ASSERT_TRUE(table.ok()) << table.status();
  ASSERT_GE(table->rows().size(), 2u);
  EXPECT_NEAR(table->rows().front().requests_per_s, 0.5, 0.05);
  EXPECT_NEAR(table->rows().back().requests_per_s, 2, 0.2);
  // A higher load wants fewer instances for each prompt (Tetris, figure 11).
  EXPECT_LT(table->rows().front().improvement_rate, table->rows().back().improvement_rate);
  for (const auto& row : table->rows()) {
    const auto workload = [](double load, int round) {
      return GenerateWorkload(*LengthDistribution::OfPaper("long"), LengthDistribution::Outputs(),
                              {load, 4000, 1, 50 + static_cast<uint64_t>(round)});
    };
    const Profile offline =
        ProfileLoads({row.requests_per_s}, workload, Llama3_8bA100(), kCluster, false);
    double best_s = 1e9;
    double own_s = 0;
    for (const ImprovementRateTrial& trial : offline.trials) {
      best_s = std::min(best_s, trial.score.mean_s);
      if (trial.improvement_rate == row.improvement_rate) own_s = trial.score.mean_s;
    }
    EXPECT_LE(own_s, 1.05 * best_s) << row.requests_per_s;
  }
  EXPECT_EQ(RetuneRates(history, Llama3_8bA100(), kCluster, kGoOn)->rows(), table->rows());
}

TEST(Retune, StopsBetweenLoads) {
  PromptHistory history;
  TimeUs now = 0;
  Arrive("short", 1, 1500, &history, &now);
  EXPECT_EQ(RetuneRates(history, Llama3_8bA100(), kCluster, [] { return true; }).status().code(),
            absl::StatusCode::kCancelled);
}

TEST(Retune, TheLargestChangeIsOverTheLoadsOfBoth) {
  const auto before = *ImprovementRateTable::Make({{1, 0.1}, {4, 0.5}});
  const auto after = *ImprovementRateTable::Make({{1, 0.1}, {2, 0.4}, {4, 0.4}});
  EXPECT_NEAR(LargestChange(before, after), 0.3, 1e-12);
  EXPECT_NEAR(LargestChange(after, before), 0.3, 1e-12);
  EXPECT_EQ(LargestChange(before, before), 0);
}

}  // namespace
}  // namespace skein::scheduler
