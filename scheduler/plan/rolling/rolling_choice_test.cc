// The plan that the rolling planner starts for one request.
#include "scheduler/plan/rolling/rolling.h"

#include <algorithm>

#include "scheduler/plan/rolling/testing/rolling_testing.h"

namespace skein::scheduler {
namespace {

TEST(Rolling, TakesTheShortestTimeWhenAloneAndFree) {
  const LatencyModel& model = Llama3_8bA100();
  for (const int64_t tokens : {100, 4000, 20000, 60000, 250000}) {
    RollingOptions options;
    options.tuning.price = 0;
    RollingPlanner planner(model, {16, 8}, options);
    planner.OnArrival(1, tokens, 5);
    std::vector<RollingPlanner::Start> starts;
    planner.Decide(5, &starts);
    ASSERT_EQ(starts.size(), 1u);
    double shortest_s = model.SecondsAt(0, 0, tokens);
    for (const int sp : model.sp_sizes())
      shortest_s = std::min(shortest_s, model.Seconds(sp, 0, tokens));
    EXPECT_DOUBLE_EQ(starts[0].chunk.end_s, 5 + shortest_s);
    EXPECT_TRUE(starts[0].last);
  }
}

// Tetris figure 3: a smaller group now grows when more instances are free.
TEST(Rolling, FillsTheGapWithAFirstChunk) {
  RollingOptions options;
  options.tuning.price = 0;
  RollingPlanner planner(Llama3_8bA100(), {16, 8}, options);
  std::vector<RollingPlanner::Start> starts;
  planner.OnArrival(1, 16 * 1024, 0);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 1u);
  planner.OnArrival(2, 128 * 1024, 0);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[1].chunk.instances.size(), 8u);
  EXPECT_FALSE(starts[1].last);
  EXPECT_LE(starts[1].chunk.end_s, starts[0].chunk.end_s);
  planner.OnChunkFinished(2, starts[1].chunk.end_s);
  planner.OnChunkFinished(1, starts[0].chunk.end_s);
  planner.Decide(starts[0].chunk.end_s, &starts);
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_EQ(starts[2].chunk.instances.size(), 16u);
  EXPECT_EQ(starts[2].history_tokens, starts[1].chunk.tokens);
}

// While a first chunk runs, the instances of the second are kept: in the decision that starts it
// and in all later ones, even if some of them are free early.
TEST(Rolling, KeepsTheInstancesOfASecondChunk) {
  RollingOptions options;
  options.tuning.price = 0;
  RollingPlanner planner(Llama3_8bA100(), {16, 8}, options);
  for (int i = 0; i < 16; ++i) planner.SetAbsent(i, i < 4 || i >= 8);
  std::vector<RollingPlanner::Start> starts;
  planner.OnArrival(1, 16 * 1024, 0);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 1u);
  ASSERT_EQ(starts[0].chunk.instances, (std::vector<int>{4, 5, 6, 7}));
  for (int i = 0; i < 16; ++i) planner.SetAbsent(i, false);
  planner.OnArrival(2, 128 * 1024, 0);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 2u);
  ASSERT_EQ(starts[1].chunk.instances, (std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15}));
  ASSERT_FALSE(starts[1].last);
  planner.OnArrival(3, 128, 0);
  planner.Decide(0, &starts);
  EXPECT_EQ(starts.size(), 2u) << "0 ... 3 are idle and kept";
  EXPECT_FALSE(planner.OnChunkFinished(1, 0.1));  // early
  planner.Decide(0.1, &starts);
  EXPECT_EQ(starts.size(), 2u) << "0 ... 7 are idle and kept";
  EXPECT_TRUE(planner.OnChunkFinished(2, 0.2));
  planner.Decide(0.2, &starts);
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_EQ(starts[2].request, 2);
}

TEST(Rolling, InOneDecisionASecondChunksInstancesAreHeldToo) {
  RollingOptions options;
  options.tuning.price = 0;
  options.tuning.waiting_weight = 0;
  options.tuning.slack = 0;
  options.tuning.stretch = 0;  // all are late: by latest start, the long one first
  RollingPlanner planner(Llama3_8bA100(), {16, 8}, options);
  for (int i = 0; i < 16; ++i) planner.SetAbsent(i, i < 4 || i >= 8);
  std::vector<RollingPlanner::Start> starts;
  planner.OnArrival(1, 16 * 1024, 0);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 1u);
  for (int i = 0; i < 16; ++i) planner.SetAbsent(i, false);
  planner.OnArrival(2, 128 * 1024, 0);
  planner.OnArrival(3, 128, 0);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[1].request, 2);
  EXPECT_FALSE(starts[1].last);
}

// Large groups stay whole elsewhere.
TEST(Rolling, OfEqualNodesTakesTheOneWhoseNextInstanceIsFreeLast) {
  RollingOptions options;
  options.tuning.price = 0.9;  // one instance each
  options.tuning.slack = 0;
  options.tuning.stretch = 0;
  RollingPlanner planner(Llama3_8bA100(), {4, 2}, options);
  std::vector<RollingPlanner::Start> starts;
  const auto run_on = [&](int64_t request, int64_t tokens, int instance) {
    for (int i = 0; i < 4; ++i) planner.SetAbsent(i, i != instance);
    planner.OnArrival(request, tokens, 0);
    planner.Decide(0, &starts);
    ASSERT_EQ(starts.back().request, request);
    ASSERT_EQ(starts.back().chunk.instances, std::vector<int>{instance});
  };
  run_on(1, 4000, 0);
  run_on(2, 8000, 2);
  for (int i = 0; i < 4; ++i) planner.SetAbsent(i, false);
  planner.OnArrival(3, 100, 0);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_EQ(starts[2].chunk.instances, std::vector<int>{3});
}

// A node's instances are free at different times; compares with every plan of one or two chunks as
// described in the header.
TEST(Rolling, StartsTheCheapestPlanThereIs) {
  // The second model: few tokens, seconds each, so that chunks of a few tokens are worthwhile.
  const LatencyModel models[] = {Llama3_8bA100(), *LatencyModel::Make({{1, {0.01, 1, 0, 0}},
                                                                       {2, {0.02, 0.55, 0, 0}},
                                                                       {4, {0.04, 0.3, 0, 0}},
                                                                       {8, {0.08, 0.17, 0, 0}}})};
  Random random(31);
  int pairs = 0, waited = 0;
  for (int round = 0; round < 800; ++round) {
    const LatencyModel& model = models[round % 2];
    const uint64_t longest = round % 2 == 0 ? 1 << 18 : 64;
    RollingOptions options;
    options.tuning.price = static_cast<double>(random.Below(10)) / 10;
    options.tuning.waiting_weight = 0;
    options.tuning.slack = options.tuning.stretch = 0;
    options.min_chunk_tokens = 1 + static_cast<int64_t>(random.Below(round % 2 == 0 ? 600 : 4));
    RollingPlanner planner(model, {8, 8}, options);
    std::vector<RollingPlanner::Start> starts;
    std::vector<double> free_s(8, 0);
    for (int i = 0; i < 8; ++i) {  // each runs something else, or nothing
      if (random.Below(4) == 0) continue;
      for (int j = 0; j < 8; ++j) planner.SetAbsent(j, j != i);
      planner.OnArrival(i, 1 + static_cast<int64_t>(random.Below(longest / 8)), 0);
      starts.clear();
      planner.Decide(0, &starts);
      ASSERT_EQ(starts.size(), 1u);
      free_s[static_cast<size_t>(i)] = starts[0].chunk.end_s;
    }
    for (int i = 0; i < 8; ++i) planner.SetAbsent(i, false);
    const int64_t tokens = 1 + static_cast<int64_t>(random.Below(longest >> random.Below(6)));
    planner.OnArrival(100, tokens, 0);
    starts.clear();
    planner.Decide(0, &starts);

    std::sort(free_s.begin(), free_s.end());
    const auto wasted_s = [&](int from, int to, double start_s) {
      double sum_s = 0;
      for (int i = from; i < to; ++i) sum_s += start_s - free_s[static_cast<size_t>(i)];
      return sum_s;
    };
    struct {
      double cost = 1e9, start_s = 0;
      int64_t tokens = 0;
      int size = 0;
    } best;
    for (const int size : {1, 2, 4, 8}) {
      const double start_s = free_s[static_cast<size_t>(size - 1)];
      const double seconds = model.Seconds(size, 0, tokens);
      const double cost =
          start_s + seconds + options.tuning.price * (size * seconds + wasted_s(0, size, start_s));
      if (cost < best.cost) best = {cost, start_s, tokens, size};
      for (int next = 2 * size; next <= 8; next *= 2) {
        const double next_s = free_s[static_cast<size_t>(next - 1)];
        const int64_t first = model.SolveChunkTokens(size, 0, next_s - start_s);
        const int64_t least = std::max<int64_t>(options.min_chunk_tokens, 2 * next);
        if (first < least || tokens - first < least) continue;
        const double first_s = model.Seconds(size, 0, first);
        const double rest_s = model.Seconds(next, first, tokens - first);
        const double both =
            next_s + rest_s +
            options.tuning.price * (size * first_s + next * rest_s + wasted_s(0, size, start_s) +
                                    wasted_s(size, next, next_s));
        if (both < best.cost) best = {both, start_s, first, size};
      }
    }
    if (best.start_s > 0) {
      EXPECT_TRUE(starts.empty()) << round;
      ++waited;
      continue;
    }
    ASSERT_EQ(starts.size(), 1u) << round;
    EXPECT_EQ(starts[0].chunk.tokens, best.tokens) << round;
    EXPECT_EQ(static_cast<int>(starts[0].chunk.instances.size()), best.size) << round;
    pairs += starts[0].last ? 0 : 1;
  }
  EXPECT_GT(pairs, 20);
  EXPECT_GT(waited, 10);
}

// A prompt stays on one node if that is fast enough, measured from its arrival.
TEST(Rolling, SpreadsOverNodesOnlyWhoWouldBeLateOnOne) {
  const LatencyModel& model = Llama3_8bA100();
  const double on_a_node_s = model.Seconds(8, 0, 100'000);
  const auto size_of = [&](double calm_s, double decided_s) {
    RollingOptions options;
    options.tuning.price = 0;
    options.tuning.calm_s = calm_s;
    RollingPlanner planner(model, {16, 8}, options);
    std::vector<RollingPlanner::Start> starts;
    planner.OnArrival(1, 100'000, 0);
    planner.Decide(decided_s, &starts);
    return starts.at(0).chunk.instances.size();
  };
  EXPECT_EQ(size_of(0, 0), 16u);
  EXPECT_EQ(size_of(on_a_node_s + 0.01, 0), 8u);
  EXPECT_EQ(size_of(on_a_node_s - 0.01, 0), 16u);
  EXPECT_EQ(size_of(on_a_node_s + 0.01, 0.02), 16u) << "it has waited";
}

}  // namespace
}  // namespace skein::scheduler
