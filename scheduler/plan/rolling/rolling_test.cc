#include "scheduler/plan/rolling/rolling.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

#include <gtest/gtest.h>
#include "scheduler/plan/latency/builtin_models.h"
#include "scheduler/plan/rolling/rolling_table.h"
#include "scheduler/simulator/prefill_run.h"
#include "scheduler/simulator/random.h"

namespace skein::scheduler {
namespace {

struct Ran {
  std::vector<ChunkPlan> chunks;  // of one request, in order
};

std::vector<SimRequest> RandomRequests(Random* random, int count) {
  std::vector<SimRequest> requests;
  double now_s = 0;
  for (int i = 0; i < count; ++i) {
    if (random->Below(3) > 0) now_s += random->Exponential(random->Below(2) == 0 ? 0.05 : 0.8);
    const int64_t scale = int64_t{1} << (3 + random->Below(15));
    requests.push_back(
        {now_s, 1 + static_cast<int64_t>(random->Below(static_cast<uint64_t>(scale))), 1});
  }
  return requests;
}

std::vector<Ran> RunAll(const std::vector<SimRequest>& requests, const Cluster& cluster,
                        const RollingOptions& options) {
  std::vector<Ran> ran(requests.size());
  RollingPlanner planner(Llama3_8bA100(), cluster, options);
  RunRolling(requests, &planner, nullptr, [&](size_t request, const ChunkPlan& chunk) {
    ran[request].chunks.push_back(chunk);
    EXPECT_TRUE(planner.CheckInvariants().ok()) << planner.CheckInvariants();
  });
  return ran;
}

// Checks one request.
void CheckRequest(const SimRequest& request, const Ran& ran) {
  int64_t tokens = 0;
  double free_s = request.arrival_s;
  std::vector<int> before;
  for (const ChunkPlan& chunk : ran.chunks) {
    EXPECT_GT(chunk.tokens, 0);
    EXPECT_GE(chunk.start_s, free_s);
    const int sp = static_cast<int>(chunk.instances.size());
    EXPECT_DOUBLE_EQ(chunk.end_s,
                     chunk.start_s + Llama3_8bA100().Seconds(sp, tokens, chunk.tokens));
    EXPECT_TRUE(std::is_sorted(chunk.instances.begin(), chunk.instances.end()));
    EXPECT_TRUE(std::includes(chunk.instances.begin(), chunk.instances.end(), before.begin(),
                              before.end()));
    before = chunk.instances;
    free_s = chunk.end_s;
    tokens += chunk.tokens;
  }
  EXPECT_EQ(tokens, request.prompt_tokens);
}

// An instance runs one chunk at a time.
void CheckInstances(const std::vector<Ran>& ran, int instances) {
  std::vector<std::vector<std::pair<double, double>>> used(static_cast<size_t>(instances));
  for (const Ran& request : ran) {
    for (const ChunkPlan& chunk : request.chunks) {
      for (const int i : chunk.instances) {
        used[static_cast<size_t>(i)].emplace_back(chunk.start_s, chunk.end_s);
      }
    }
  }
  for (auto& spans : used) {
    std::sort(spans.begin(), spans.end());
    for (size_t i = 1; i < spans.size(); ++i) EXPECT_LE(spans[i - 1].second, spans[i].first);
  }
}

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

// Modes may change at any moment: started work stays, waiting requests are planned again, and all
// are served.
TEST(Rolling, ChangesItsModeAtAnyMoment) {
  using Kind = CommitMode::Kind;
  const CommitMode modes[] = {
      {}, {Kind::kTetris, 0.2, 0}, {Kind::kSingle, 0, 0}, {Kind::kFixed, 0, 8}};
  Random random(21);
  RollingPlanner planner(Llama3_8bA100(), {16, 8}, {});
  std::vector<RollingPlanner::Start> starts;
  std::vector<std::pair<double, int64_t>> running;
  std::vector<int64_t> left;
  double now_s = 0;
  for (int step = 0; step < 4000 || !running.empty(); ++step) {
    now_s += random.Exponential(0.1);
    if (step < 3000 && random.Below(3) == 0) {
      left.push_back(1 + static_cast<int64_t>(random.Below(60'000)));
      planner.OnArrival(static_cast<int64_t>(left.size()) - 1, left.back(), now_s);
    } else if (!running.empty()) {
      const auto first = std::min_element(running.begin(), running.end());
      planner.OnChunkFinished(first->second, now_s);
      running.erase(first);
    }
    if (random.Below(20) == 0) {
      RollingTuning tuning;
      tuning.commit = modes[random.Below(4)];
      planner.Tune(tuning);
    }
    starts.clear();
    planner.Decide(now_s, &starts);
    for (const auto& start : starts) {
      running.emplace_back(start.chunk.end_s, start.request);
      left[static_cast<size_t>(start.request)] -= start.chunk.tokens;
    }
    ASSERT_TRUE(planner.CheckInvariants().ok()) << planner.CheckInvariants();
  }
  EXPECT_EQ(planner.waiting(), 0);
  for (const int64_t tokens : left) EXPECT_EQ(tokens, 0);
}

// Instances join, leave and are absent for a while, interleaved with all other events.
TEST(Rolling, TheClusterMayChangeAtAnyMoment) {
  using Kind = CommitMode::Kind;
  const CommitMode modes[] = {{}, {Kind::kTetris, 0.2, 0}, {Kind::kFixed, 0, 8}};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Random random(seed);
    RollingOptions options;
    options.token_multiple = 16;
    options.tuning.commit = modes[seed % 3];
    Cluster cluster{8, 4};
    RollingPlanner planner(Llama3_8bA100(), cluster, options);
    std::vector<uint8_t> absent(8, 0);
    std::map<int64_t, std::vector<int>> running;
    std::vector<RollingPlanner::Start> starts;
    int64_t arrived = 0;
    int64_t chunks = 0;
    double now_s = 0;
    for (int step = 0; step < 600; ++step) {
      now_s += random.Exponential(0.1);
      const uint64_t kind = random.Below(10);
      if (kind < 4) {
        planner.OnArrival(arrived++, 1 + static_cast<int64_t>(random.Below(60000)), now_s);
      } else if (kind < 7 && !running.empty()) {
        auto it = running.begin();
        std::advance(it, random.Below(running.size()));
        const int64_t request = it->first;
        running.erase(it);
        planner.OnChunkFinished(request, now_s);
      } else if (kind == 7) {
        const auto instance = random.Below(absent.size());
        absent[instance] = !absent[instance];
        planner.SetAbsent(static_cast<int>(instance), absent[instance] != 0);
      } else if (kind == 8) {
        // All instances except one, after a new one; or one more instance.
        const int gone = static_cast<int>(random.Below(static_cast<uint64_t>(cluster.instances)));
        const bool shrinks = cluster.instances > 5 && random.Below(2) == 0;
        std::vector<int> index_of(static_cast<size_t>(cluster.instances));
        int next = shrinks ? 0 : 1;
        for (int i = 0; i < cluster.instances; ++i) {
          index_of[static_cast<size_t>(i)] = shrinks && i == gone ? -1 : next++;
        }
        for (auto it = running.begin(); it != running.end();) {
          if (shrinks && std::count(it->second.begin(), it->second.end(), gone) > 0) {
            planner.OnCancelled(it->first);
            planner.OnChunkFinished(it->first, now_s);
            it = running.erase(it);
            continue;
          }
          for (int& i : it->second) i = index_of[static_cast<size_t>(i)];
          ++it;
        }
        cluster.instances = next;
        planner.Reshape(cluster, index_of, options.token_multiple);
        absent.assign(static_cast<size_t>(next), 0);
      }
      starts.clear();
      planner.Decide(now_s, &starts);
      ASSERT_TRUE(planner.CheckInvariants().ok()) << planner.CheckInvariants();
      for (const RollingPlanner::Start& start : starts) {
        ++chunks;
        EXPECT_TRUE(start.last || start.chunk.tokens % 16 == 0);
        for (const int i : start.chunk.instances) {
          ASSERT_LT(i, cluster.instances);
          EXPECT_FALSE(absent[static_cast<size_t>(i)]);
          for (const auto& [request, held] : running)
            EXPECT_EQ(std::count(held.begin(), held.end(), i), 0);
        }
        running[start.request] = start.chunk.instances;
      }
    }
    EXPECT_GT(chunks, 50);
  }
}

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
TEST(Rolling, ForeseesTheRestOfAPlanWithItsHistory) {
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

TEST(RollingTable, PicksTheNearestLoad) {
  const auto table = RollingTable::Make({{1, {0.1, 1}}, {3, {0.2, 2}}});
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->At(0).price, 0.1);
  EXPECT_EQ(table->At(2).price, 0.1);
  EXPECT_EQ(table->At(2.1).slack, 2);
  EXPECT_FALSE(RollingTable::Make({}).ok());
  EXPECT_FALSE(RollingTable::Make({{1, {1, 1}}}).ok());
  EXPECT_FALSE(RollingTable::Make({{2, {0, 0}}, {1, {0, 0}}}).ok());
  EXPECT_FALSE(RollingTable::Make({{1, {0, -1}}}).ok());
  EXPECT_FALSE(RollingTable::Make({{1, {0, 1, -1}}}).ok());
  EXPECT_FALSE(RollingTable::Make({{1, {0, 1, 1, -1}}}).ok());
  EXPECT_FALSE(RollingTable::Make({{1, {0, 1, 1, 1, NAN}}}).ok());
}

// Without a table, or with an empty row, the planner is the same.
TEST(RollingTable, HasThePlannersOwnDefaults) {
  EXPECT_EQ(RollingSetting().tuning, RollingOptions().tuning);
  EXPECT_EQ(RollingTable::Constant({}).At(3), RollingOptions().tuning);
}

TEST(RollingSelector, FollowsTheLoadEveryThirtySeconds) {
  RollingSelector selector(*RollingTable::Make({{1, {0.1, 1}}, {10, {0.5, 1}}}));
  EXPECT_EQ(selector.Current(0).price, 0.1);
  for (int i = 1; i <= 400; ++i) selector.OnArrival(i * kSecondUs / 10);
  EXPECT_EQ(selector.Current(40 * kSecondUs).price, 0.5);
  EXPECT_EQ(selector.Current(69 * kSecondUs).price, 0.5);
  EXPECT_EQ(selector.Current(110 * kSecondUs).price, 0.1);
}

TEST(RollingSelector, AReplacedTableIsInForceAtOnce) {
  RollingSelector selector(RollingTable::Constant({.price = 0.1}));
  selector.Replace(RollingTable::Constant({.price = 0.2}));
  EXPECT_EQ(selector.Current(0).price, 0.2);
  selector.Replace(RollingTable::Constant({.price = 0.3}));
  EXPECT_EQ(selector.Current(1).price, 0.3);
}

}  // namespace
}  // namespace skein::scheduler
