// The improvement-rate profiler of Tetris section 5.1: for each load, Poisson arrivals with lengths
// of a given distribution are simulated under every candidate, and the best one is kept. The same
// for the rolling planner's settings.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "scheduler/simulator/simulator.h"

namespace skein::scheduler {

struct CandidateScore {
  double mean_s = 0;
  double p50_s = 0;
  double p99_s = 0;
};

// The result of one improvement rate at one load.
struct ImprovementRateTrial {
  double requests_per_s = 0;
  double improvement_rate = 0;
  CandidateScore score;
};

// The candidates: 0.05, 0.15 ... 0.75, the paper's range (section 7.1).
std::vector<double> ImprovementRateCandidates();

// A workload of this load, the same for all candidates; other requests for each round, from 0.
using WorkloadOfLoad = std::function<std::vector<SimRequest>(double requests_per_s, int round)>;

struct Profile {
  Tuning tuning;
  std::vector<ImprovementRateTrial> trials;  // load by load
};

// For each load (ascending, positive): the improvement rate with the least mean TTFT; and for the
// rolling planner a setting of its own, or exactly what Tetris or single (as just tuned), greedy,
// fixed SP 8 or 16 does. Five rounds of requests tell
//  - by how much P50 or P99 may be above Tetris's, and above the best of all these: the upper end
//    of a one-sided 95 % confidence interval over the rounds, 0 if it is below. The least sum
//    wins: Tetris's own mode is never above Tetris, so nothing that may be wins against it unless
//    it mends more of what is lost to another;
//  - and of those where the sum is 0, the gain over Tetris: P50 x P99 x P99, geometric means. P99
//    counts twice because it is the harder to lower.
// What is on average above Tetris in one of them is not taken at all. Own settings are found by
// descent along one coordinate after the other, twice. `tune_rolling` false leaves that table as it
// is by default.
Profile ProfileLoads(const std::vector<double>& loads, const WorkloadOfLoad& workload,
                     const LatencyModel& model, const Cluster& cluster, bool tune_rolling);

}  // namespace skein::scheduler
