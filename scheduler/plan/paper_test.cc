// The worked examples of Tetris, section 2.4.
#include <gtest/gtest.h>

#include <vector>

#include "scheduler/plan/baselines.h"
#include "scheduler/plan/builtin_models.h"
#include "scheduler/plan/cdsp_planner.h"

namespace skein::scheduler {
namespace {

constexpr int64_t kK = 1024;
constexpr Cluster kTwoNodes = {16, 8};

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

// What each instance waits after `plan` has been taken.
void Take(const PrefillPlan& plan, std::vector<double>* queue_s) {
  for (const ChunkPlan& chunk : plan.chunks) {
    for (const int instance : chunk.instances) {
      (*queue_s)[static_cast<size_t>(instance)] = chunk.end_s;
    }
  }
}

TEST(PaperTest, GreedyTakesAllInstancesAndDelaysTheNext) {
  const LatencyModel model = Exact({{4, Through({16 * kK, .39}, {32 * kK, .92}, 1.8e-5)},
                                    {8, Through({16 * kK, .31}, {32 * kK, .58}, 1.5e-5)},
                                    {16, Through({16 * kK, .46}, {32 * kK, .53}, 4e-6)}});
  std::vector<double> queue_s(16, 1.0);
  const PrefillPlan first = PlanGreedy(model, kTwoNodes, queue_s, 32 * kK);
  EXPECT_NEAR(first.ttft_s, 1.53, 1e-9);
  Take(first, &queue_s);
  EXPECT_NEAR(PlanGreedy(model, kTwoNodes, queue_s, 16 * kK).ttft_s, 1.84, 1e-9);
}

TEST(PaperTest, AnImprovementRateLeavesRoomForTheNext) {
  const LatencyModel model = Exact({{4, Through({16 * kK, .39}, {32 * kK, .92}, 1.8e-5)},
                                    {8, Through({16 * kK, .31}, {32 * kK, .58}, 1.5e-5)},
                                    {16, Through({16 * kK, .46}, {32 * kK, .53}, 4e-6)}});
  std::vector<double> queue_s(16, 1.0);
  const PlanOptions options{.improvement_rate = 0.05};
  const PrefillPlan first = PlanCdsp(model, kTwoNodes, queue_s, 32 * kK, options);
  EXPECT_NEAR(first.ttft_s, 1.58, 1e-9);
  Take(first, &queue_s);
  EXPECT_NEAR(PlanCdsp(model, kTwoNodes, queue_s, 16 * kK, options).ttft_s, 1.31, 1e-9);
}

}  // namespace
}  // namespace skein::scheduler
