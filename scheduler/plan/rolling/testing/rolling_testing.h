// Runs the simulator's requests with a RollingPlanner, and checks the results.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "scheduler/plan/latency/builtin_models.h"
#include "scheduler/plan/rolling/rolling.h"
#include "scheduler/simulator/prefill_run.h"
#include "scheduler/simulator/random.h"

namespace skein::scheduler {

struct Ran {
  std::vector<ChunkPlan> chunks;  // of one request, in order
};

inline std::vector<SimRequest> RandomRequests(Random* random, int count) {
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

inline std::vector<Ran> RunAll(const std::vector<SimRequest>& requests, const Cluster& cluster,
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
inline void CheckRequest(const SimRequest& request, const Ran& ran) {
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
inline void CheckInstances(const std::vector<Ran>& ran, int instances) {
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

}  // namespace skein::scheduler
