#include "scheduler/plan/rolling/rolling.h"

#include <algorithm>

#include "scheduler/plan/rolling/testing/rolling_testing.h"

namespace skein::scheduler {
namespace {

TEST(Rolling, RunsEveryRequestLegally) {
  const Cluster clusters[] = {{1, 1}, {16, 8}, {11, 4}, {6, 8}, {24, 6}, {40, 8}};
  Random random(11);
  for (int round = 0; round < 60; ++round) {
    const Cluster& cluster = clusters[round % 6];
    RollingOptions options;
    options.tuning.price = static_cast<double>(random.Below(20)) / 20;
    options.tuning.slack = static_cast<double>(random.Below(4));
    options.tuning.stretch = static_cast<double>(random.Below(7)) / 2;
    options.tuning.waiting_weight = static_cast<double>(random.Below(20));
    options.tuning.calm_s = static_cast<double>(random.Below(3));
    if (random.Below(3) == 0) options.tuning.commit = {CommitMode::Kind::kTetris, 0.25, 0};
    options.lookahead = 1 + static_cast<int>(random.Below(24));
    const std::vector<SimRequest> requests = RandomRequests(&random, 60);
    const std::vector<Ran> ran = RunAll(requests, cluster, options);
    for (size_t r = 0; r < requests.size(); ++r) CheckRequest(requests[r], ran[r]);
    CheckInstances(ran, cluster.instances);
  }
}

TEST(Rolling, EqualEventsGiveEqualStarts) {
  Random random(3);
  const std::vector<SimRequest> requests = RandomRequests(&random, 200);
  const std::vector<Ran> once = RunAll(requests, {16, 8}, {});
  const std::vector<Ran> again = RunAll(requests, {16, 8}, {});
  for (size_t r = 0; r < requests.size(); ++r) EXPECT_EQ(once[r].chunks, again[r].chunks);
}

// A shorter request that arrives meanwhile does not overtake a request between its chunks, however
// much slack there is.
TEST(Rolling, WhoHasBegunGoesOnFirst) {
  RollingOptions options;
  options.tuning.price = 0;
  options.tuning.slack = 1000;
  RollingPlanner planner(Llama3_8bA100(), {16, 8}, options);
  std::vector<RollingPlanner::Start> starts;
  planner.OnArrival(1, 16 * 1024, 0);
  planner.OnArrival(2, 128 * 1024, 0);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 2u);
  ASSERT_FALSE(starts[1].last);
  planner.OnArrival(3, 1000, 0);
  planner.OnChunkFinished(2, starts[1].chunk.end_s);
  planner.OnChunkFinished(1, starts[0].chunk.end_s);
  planner.Decide(starts[0].chunk.end_s, &starts);
  ASSERT_GE(starts.size(), 3u);
  EXPECT_EQ(starts[2].request, 2);
  EXPECT_EQ(starts[2].chunk.instances.size(), 16u);
}

// Late or on time, also at the boundary: each request is considered once, so that one place of the
// lookahead remains for the other.
TEST(Rolling, LooksAtARequestOnce) {
  for (const double decided_s : {0.0, 0.001, 0.1}) {
    RollingOptions options;
    options.tuning.price = 0.9;  // few instances each
    options.tuning.slack = 0;
    options.tuning.stretch = 1;  // the latest start is the arrival
    options.lookahead = 2;
    RollingPlanner planner(Llama3_8bA100(), {16, 8}, options);
    std::vector<RollingPlanner::Start> starts;
    planner.OnArrival(1, 3000, 0);
    EXPECT_EQ(planner.LatestStart(1), 0);
    options.tuning.stretch = 10;
    planner.Tune(options.tuning);
    planner.OnArrival(2, 5000, 0);
    planner.Decide(decided_s, &starts);
    EXPECT_EQ(starts.size(), 2u) << decided_s;
  }
}

// The bound: once a request is late, no later arrival goes before it. So a long request in an
// endless stream of short ones, at three times the capacity, starts once those are done that
// arrived before it was late.
TEST(Rolling, StarvesNobody) {
  RollingPlanner planner(Llama3_8bA100(), {1, 1}, {});
  std::vector<RollingPlanner::Start> starts;
  std::vector<double> arrival_s = {0, 0};
  double now_s = 0;
  planner.OnArrival(0, 2000, now_s);  // runs when the long one arrives
  planner.Decide(now_s, &starts);
  planner.OnArrival(1, 100'000, now_s);
  const double latest_s = planner.LatestStart(1);
  while (starts.at(0).request != 1) {
    ASSERT_LE(arrival_s[static_cast<size_t>(starts[0].request)], latest_s);
    ASSERT_LE(now_s, 3 * latest_s + 2.0);
    now_s = starts[0].chunk.end_s;
    planner.OnChunkFinished(starts[0].request, now_s);
    for (int i = 0; i < 3; ++i) {
      planner.OnArrival(static_cast<int64_t>(arrival_s.size()), 2000, now_s);
      arrival_s.push_back(now_s);
    }
    starts.clear();
    planner.Decide(now_s, &starts);
    ASSERT_EQ(starts.size(), 1u);
  }
  EXPECT_GE(now_s, latest_s) << "short ones first, within its slack";
}

// The bound depends on the request and on the mean request, never on the queue.
TEST(Rolling, LatestStartDoesNotMoveWithTheQueue) {
  const LatencyModel& model = Llama3_8bA100();
  const auto shortest_s = [&](int64_t tokens) {
    double seconds = model.Seconds(1, 0, tokens);
    for (const int sp : model.sp_sizes()) seconds = std::min(seconds, model.Seconds(sp, 0, tokens));
    return seconds;
  };
  for (const double stretch : {0.5, 1.0, 3.0}) {
    RollingOptions options;
    options.tuning.stretch = stretch;
    options.tuning.slack = 2;
    RollingPlanner planner(model, {16, 8}, options);
    for (int i = 0; i < 500; ++i) planner.OnArrival(i, 20'000, 7);  // a queue, and the mean
    planner.OnArrival(1000, 100'000, 9);
    const double mean_s = shortest_s(20'000) + (shortest_s(100'000) - shortest_s(20'000)) / 200;
    EXPECT_NEAR(planner.LatestStart(1000), 9 + (stretch - 1) * shortest_s(100'000) + 2 * mean_s,
                1e-9);
  }
}

TEST(Rolling, ForgetsTheCancelled) {
  RollingPlanner planner(Llama3_8bA100(), {1, 1}, {});
  std::vector<RollingPlanner::Start> starts;
  planner.OnArrival(1, 1000, 0);
  planner.OnArrival(2, 2000, 0);
  planner.OnArrival(3, 3000, 0);
  planner.Decide(0, &starts);
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].request, 1);
  planner.OnCancelled(1);
  planner.OnCancelled(2);
  planner.OnCancelled(77);
  ASSERT_TRUE(planner.CheckInvariants().ok());
  planner.Decide(0, &starts);
  EXPECT_EQ(starts.size(), 1u) << "its chunk still runs";
  EXPECT_FALSE(planner.OnChunkFinished(1, 9));
  planner.Decide(9, &starts);
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[1].request, 3);
}

// The shell may report an end that is later or earlier than planned.
TEST(Rolling, TakesEndsAsTheyCome) {
  Random random(5);
  RollingPlanner planner(Llama3_8bA100(), {16, 8}, {});
  std::vector<RollingPlanner::Start> starts;
  std::vector<int64_t> running;
  double now_s = 0;
  int64_t next = 0;
  for (int step = 0; step < 3000; ++step) {
    now_s += random.Exponential(0.05);
    if (random.Below(2) == 0 || running.empty()) {
      planner.OnArrival(next++, 1 + static_cast<int64_t>(random.Below(60'000)), now_s);
    } else {
      const size_t at = random.Below(running.size());
      planner.OnChunkFinished(running[at], now_s);
      running.erase(running.begin() + static_cast<int64_t>(at));
    }
    starts.clear();
    planner.Decide(now_s, &starts);
    for (const auto& start : starts) {
      EXPECT_DOUBLE_EQ(start.chunk.start_s, now_s);
      running.push_back(start.request);
    }
    ASSERT_TRUE(planner.CheckInvariants().ok()) << planner.CheckInvariants();
  }
}

}  // namespace
}  // namespace skein::scheduler
