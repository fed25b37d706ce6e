// The modes in which the rolling planner fixes plans when requests arrive.
#include "scheduler/plan/rolling/rolling.h"

#include <algorithm>

#include "scheduler/plan/rolling/testing/rolling_testing.h"

namespace skein::scheduler {
namespace {

// A plan cancelled before its start leaves no trace.
TEST(Rolling, CommitsAsIfTheCancelledHadNeverCome) {
  RollingOptions options;
  options.tuning.commit = {CommitMode::Kind::kFixed, 0, 1};
  RollingPlanner planner(Llama3_8bA100(), {2, 1}, options);
  std::vector<RollingPlanner::Start> starts;
  planner.OnArrival(1, 2000, 0);
  planner.OnArrival(2, 3000, 0);
  planner.OnArrival(3, 100'000, 0);  // to wait behind the first, which ends sooner
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 2u);
  planner.OnCancelled(3);
  planner.OnArrival(4, 1000, 0);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 2u);
  planner.OnChunkFinished(1, starts[0].chunk.end_s);
  planner.Decide(starts[0].chunk.end_s, &starts);
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_EQ(starts[2].request, 4);
  EXPECT_EQ(starts[2].chunk.instances, starts[0].chunk.instances);
}

TEST(Rolling, WhatIsCancelledBeforeItIsCommittedIsNotCommitted) {
  RollingOptions options;
  options.tuning.commit = {CommitMode::Kind::kFixed, 0, 1};
  RollingPlanner planner(Llama3_8bA100(), {2, 1}, options);
  std::vector<RollingPlanner::Start> starts;
  planner.OnArrival(1, 2000, 0);
  planner.OnArrival(2, 1000, 0);
  planner.OnCancelled(1);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].request, 2);
}

// Chunks that end early: the next plan takes this into account.
TEST(Rolling, CommitsToWhatIsFreeEarlierThanPlanned) {
  RollingOptions options;
  options.tuning.commit = {CommitMode::Kind::kFixed, 0, 1};
  RollingPlanner planner(Llama3_8bA100(), {2, 1}, options);
  std::vector<RollingPlanner::Start> starts;
  planner.OnArrival(1, 100'000, 0);
  planner.OnArrival(2, 50'000, 0);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_FALSE(planner.OnChunkFinished(1, 0.5));
  planner.OnArrival(3, 1000, 0.5);
  planner.Decide(0.5, &starts);
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_EQ(starts[2].chunk.instances, starts[0].chunk.instances);
}

// The rest of a plan takes longer because of the chunks that have run. A request planned after an
// early end is not queued behind it if another instance is free earlier.
TEST(Rolling, EstimatesTheRestOfAPlanWithItsHistory) {
  const LatencyModel model =
      *LatencyModel::Make({{1, {0, 1e-3, 1e-6, 0.5e-6}}, {2, {0, 0.5e-3, 0.5e-6, 0.25e-6}}});
  RollingOptions options;
  options.tuning.commit = {CommitMode::Kind::kFixed, 0, 1};
  RollingPlanner planner(model, {4, 2}, options);
  std::vector<RollingPlanner::Start> starts;
  const int64_t tokens[] = {100, 1000, 2606, 5000};  // until 0.1, 1.5, 6.0 and 17.5 s
  for (int i = 0; i < 4; ++i) planner.OnArrival(i, tokens[i], 0);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 4u);
  const double end_s[] = {starts[0].chunk.end_s, starts[1].chunk.end_s, starts[2].chunk.end_s};

  RollingTuning tetris;
  tetris.commit = {CommitMode::Kind::kTetris, 0, 0};
  planner.Tune(tetris);
  planner.OnChunkFinished(0, end_s[0]);
  planner.OnArrival(4, 4000, end_s[0]);  // on 0 until 1 is free, then on both until 6.8 s
  planner.Decide(end_s[0], &starts);
  ASSERT_EQ(starts.size(), 5u);
  ASSERT_FALSE(starts[4].last);
  ASSERT_EQ(starts[4].chunk.instances, std::vector<int>{0});

  planner.Tune(options.tuning);
  planner.OnChunkFinished(3, 0.5);  // early
  planner.OnArrival(5, 5000, 0.5);
  planner.OnArrival(6, 100, 0.5);
  planner.Decide(0.5, &starts);
  ASSERT_EQ(starts.size(), 6u);
  planner.OnChunkFinished(4, starts[4].chunk.end_s);
  planner.OnChunkFinished(1, end_s[1]);
  planner.Decide(end_s[1], &starts);
  ASSERT_EQ(starts.size(), 7u);
  EXPECT_NEAR(starts[6].chunk.end_s, 6.8, 0.01);
  planner.OnChunkFinished(2, end_s[2]);
  planner.Decide(end_s[2], &starts);
  ASSERT_EQ(starts.size(), 8u);
  EXPECT_EQ(starts[7].request, 6);
  EXPECT_EQ(starts[7].chunk.instances, std::vector<int>{2});
}

// When one mode replaces another directly, existing plans are dropped.
TEST(Rolling, CommitsAnewAfterAModeWithoutPlans) {
  RollingOptions options;
  options.tuning.commit = {CommitMode::Kind::kFixed, 0, 1};
  RollingPlanner planner(Llama3_8bA100(), {2, 1}, options);
  std::vector<RollingPlanner::Start> starts;
  planner.OnArrival(1, 2000, 0);
  planner.OnArrival(2, 3000, 0);
  planner.OnArrival(3, 100'000, 0);  // behind the first
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 2u);
  planner.Tune({});
  planner.OnCancelled(3);
  planner.Tune(options.tuning);
  planner.OnArrival(4, 1000, 0);
  planner.Decide(0, &starts);
  planner.OnChunkFinished(1, starts[0].chunk.end_s);
  planner.Decide(starts[0].chunk.end_s, &starts);
  ASSERT_EQ(starts.size(), 3u);
  EXPECT_EQ(starts[2].request, 4);
}

// Committed plans need the whole cluster: with an instance away, or too few for the group, no
// request waits for instances that may never come.
TEST(Rolling, CommitsOnlyWhileAllInstancesAreThere) {
  RollingOptions options;
  options.token_multiple = 16;
  options.tuning.commit = {CommitMode::Kind::kFixed, 0, 8};
  RollingPlanner planner(Llama3_8bA100(), {8, 8}, options);
  std::vector<RollingPlanner::Start> starts;
  planner.OnArrival(1, 1000, 0);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].chunk.instances.size(), 8u);
  planner.OnArrival(2, 1000, 0);
  planner.SetAbsent(3, true);
  EXPECT_FALSE(planner.OnChunkFinished(1, 1));
  starts.clear();
  planner.Decide(1, &starts);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_LT(starts[0].chunk.instances.size(), 8u);
  EXPECT_EQ(std::count(starts[0].chunk.instances.begin(), starts[0].chunk.instances.end(), 3), 0);
  EXPECT_FALSE(planner.OnChunkFinished(2, 2));
  planner.SetAbsent(3, false);
  planner.OnArrival(3, 1000, 2);
  starts.clear();
  planner.Decide(2, &starts);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].chunk.instances.size(), 8u);
  EXPECT_FALSE(planner.OnChunkFinished(3, 3));
  planner.Reshape({6, 8}, {0, 1, 2, -1, 3, 4, 5, -1}, options.token_multiple);
  planner.OnArrival(4, 1000, 3);
  starts.clear();
  planner.Decide(3, &starts);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_LT(starts[0].chunk.instances.size(), 8u);
}

// A decision looks at the plans that have not started, whose number is bounded. Requests beyond the
// bound are still served, in order of arrival.
TEST(Rolling, CommitsAsManyPlansAsTheInstancesAllow) {
  RollingOptions options;
  options.tuning.commit = {CommitMode::Kind::kFixed, 0, 1};
  constexpr int kInstances = 2;
  constexpr auto kMost = static_cast<int64_t>(RollingPlanner::kCommittedPerInstance) * kInstances;
  RollingPlanner planner(Llama3_8bA100(), {kInstances, 8}, options);
  constexpr int64_t kRequests = 3 * kMost;
  for (int64_t request = 1; request <= kRequests; ++request) planner.OnArrival(request, 1000, 0);
  std::vector<RollingPlanner::Start> starts;
  std::vector<int64_t> order;
  double now_s = 0;
  for (planner.Decide(0, &starts); !starts.empty(); planner.Decide(now_s, &starts)) {
    EXPECT_LE(planner.committed(), kMost);
    for (const RollingPlanner::Start& start : std::exchange(starts, {})) {
      order.push_back(start.request);
      now_s = std::max(now_s, start.chunk.end_s);
      EXPECT_FALSE(planner.OnChunkFinished(start.request, now_s));
    }
    EXPECT_TRUE(planner.CheckInvariants().ok());
  }
  EXPECT_EQ(order.size(), static_cast<size_t>(kRequests));
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

}  // namespace
}  // namespace skein::scheduler
