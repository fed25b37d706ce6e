// The mode and the cluster change while requests wait and run.
#include "scheduler/plan/rolling/rolling.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "scheduler/plan/rolling/testing/rolling_testing.h"

namespace skein::scheduler {
namespace {

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

}  // namespace
}  // namespace skein::scheduler
