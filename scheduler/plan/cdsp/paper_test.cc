// The worked examples of Tetris, section 2.4.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "scheduler/plan/baselines.h"
#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/plan/latency/builtin_models.h"

namespace skein::scheduler {
namespace {

constexpr int64_t kK = 1024;
constexpr Cluster kTwoNodes = {16, 8};

// The paper computes from the cells of its Table 1, so models that pass through those cells give
// its exact figures. The built-in profile is fitted to all cells and misses them by up to 6.3 %.
constexpr double kFitMiss = 0.064;

// Models that pass through cells of Table 1 exactly.
struct Point {
  int64_t tokens;
  double seconds;
};

SpCoefficients Through(Point p, Point q, double b_s_per_token) {
  const auto x = static_cast<double>(p.tokens);
  const auto y = static_cast<double>(q.tokens);
  const double d = (q.seconds - p.seconds - b_s_per_token * (y - x)) / (y * y - x * x);
  return {p.seconds - b_s_per_token * x - d * x * x, b_s_per_token, 2 * d, d};
}

LatencyModel Exact(const std::map<int, SpCoefficients>& sizes) {
  auto model = LatencyModel::Make(sizes);
  EXPECT_TRUE(model.ok()) << model.status();
  return *model;
}

LatencyModel ShortPrompts() {
  return Exact({{4, Through({16 * kK, .39}, {32 * kK, .92}, 1.8e-5)},
                {8, Through({16 * kK, .31}, {32 * kK, .58}, 1.5e-5)},
                {16, Through({16 * kK, .46}, {32 * kK, .53}, 4e-6)}});
}

// Each instance's wait after `plan` was taken.
void Take(const PrefillPlan& plan, std::vector<double>* queue_s) {
  for (const ChunkPlan& chunk : plan.chunks) {
    for (const int instance : chunk.instances) {
      (*queue_s)[static_cast<size_t>(instance)] = chunk.end_s;
    }
  }
}

TEST(PaperTest, GreedyTakesAllInstancesAndDelaysTheNext) {
  const LatencyModel model = ShortPrompts();
  std::vector<double> queue_s(16, 1.0);
  const PrefillPlan first = PlanGreedy(model, kTwoNodes, queue_s, 32 * kK);
  EXPECT_NEAR(first.ttft_s, 1.53, 1e-9);
  Take(first, &queue_s);
  EXPECT_NEAR(PlanGreedy(model, kTwoNodes, queue_s, 16 * kK).ttft_s, 1.84, 1e-9);
}

TEST(PaperTest, AnImprovementRateLeavesRoomForTheNext) {
  const LatencyModel model = ShortPrompts();
  std::vector<double> queue_s(16, 1.0);
  const PlanOptions options{.improvement_rate = 0.05};
  const PrefillPlan first = PlanCdsp(model, kTwoNodes, queue_s, 32 * kK, options);
  EXPECT_NEAR(first.ttft_s, 1.58, 1e-9);
  Take(first, &queue_s);
  EXPECT_NEAR(PlanCdsp(model, kTwoNodes, queue_s, 16 * kK, options).ttft_s, 1.31, 1e-9);
}

TEST(PaperTest, TheBuiltInProfileDecidesTheSame) {
  const LatencyModel& model = Llama3_8bA100();
  const std::vector<double> busy(16, 1.0);
  std::vector<double> queue_s = busy;
  const PrefillPlan greedy = PlanGreedy(model, kTwoNodes, queue_s, 32 * kK);
  EXPECT_EQ(greedy.chunks[0].instances.size(), 16u);
  EXPECT_NEAR(greedy.ttft_s, 1.53, kFitMiss * 0.53);
  Take(greedy, &queue_s);
  EXPECT_NEAR(PlanGreedy(model, kTwoNodes, queue_s, 16 * kK).ttft_s, 1.84, kFitMiss * 0.84);

  queue_s = busy;
  const PlanOptions options{.improvement_rate = 0.03};  // SP 8 gains 4.8 % of SP 4
  const PrefillPlan first = PlanCdsp(model, kTwoNodes, queue_s, 32 * kK, options);
  EXPECT_EQ(first.chunks[0].instances.size(), 8u);
  EXPECT_NEAR(first.ttft_s, 1.58, kFitMiss * 0.58);
  Take(first, &queue_s);
  const PrefillPlan second = PlanCdsp(model, kTwoNodes, queue_s, 16 * kK, options);
  EXPECT_EQ(second.chunks[0].instances.size(), 8u);
  EXPECT_NEAR(second.ttft_s, 1.31, kFitMiss * 0.31);
}

// 128k tokens while eight of sixteen instances are busy for 0.31 s: at once on the other eight 3.96
// s; on all of them after waiting 2.62 s, 1.34 s less.
TEST(PaperTest, ChunksBeatBothWaitingAndNotWaiting) {
  const LatencyModel model = Exact({{8, Through({16 * kK, .31}, {128 * kK, 3.96}, 1e-6)},
                                    {16, Through({16 * kK, .46}, {128 * kK, 2.31}, 1e-6)}});
  std::vector<double> queue_s(16, 0.0);
  std::fill(queue_s.begin() + 8, queue_s.end(), 0.31);
  const double at_once_s = model.Seconds(8, 0, 128 * kK);
  const double after_waiting_s = 0.31 + model.Seconds(16, 0, 128 * kK);
  EXPECT_NEAR(at_once_s, 3.96, 1e-9);
  EXPECT_NEAR(after_waiting_s, 2.62, 1e-9);
  EXPECT_NEAR(PlanSingleChunk(model, kTwoNodes, queue_s, 128 * kK, {}).ttft_s, 2.62, 1e-9);

  const PrefillPlan plan = PlanCdsp(model, kTwoNodes, queue_s, 128 * kK, {});
  ASSERT_EQ(plan.chunks.size(), 2u);
  EXPECT_NEAR(static_cast<double>(plan.chunks[0].tokens), 16 * kK, 1);  // what SP 8 does in 0.31 s
  EXPECT_EQ(plan.chunks[0].instances, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(plan.chunks[1].instances.size(), 16u);
  EXPECT_NEAR(plan.chunks[1].start_s, 0.31, 1e-9);
  EXPECT_LT(plan.ttft_s, after_waiting_s);
}

TEST(PaperTest, ChunksBeatBothOnTheBuiltInProfileToo) {
  const LatencyModel& model = Llama3_8bA100();
  std::vector<double> queue_s(16, 0.0);
  std::fill(queue_s.begin() + 8, queue_s.end(), 0.31);
  const double at_once_s = model.Seconds(8, 0, 128 * kK);
  const double after_waiting_s = 0.31 + model.Seconds(16, 0, 128 * kK);
  EXPECT_NEAR(at_once_s, 3.96, kFitMiss * 3.96);
  EXPECT_NEAR(after_waiting_s, 2.62, kFitMiss * 2.31);
  const PrefillPlan plan = PlanCdsp(model, kTwoNodes, queue_s, 128 * kK, {});
  EXPECT_EQ(plan.chunks.size(), 2u);
  EXPECT_LT(plan.ttft_s, after_waiting_s - 0.05);
}

}  // namespace
}  // namespace skein::scheduler
