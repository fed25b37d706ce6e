// The improvement-rate profiler of Tetris section 5.1: for each load, simulates Poisson arrivals
// with a given length distribution under every candidate, and keeps the best one. The same for the
// rolling planner's settings.
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

// A workload of this load, the same for all candidates; each round (from 0) has other requests.
using WorkloadOfLoad = std::function<std::vector<SimRequest>(double requests_per_s, int round)>;

struct Profile {
  Tuning tuning;
  std::vector<ImprovementRateTrial> trials;  // load by load
};

// For each load (ascending, positive): the improvement rate with the least mean TTFT. For the
// rolling planner: a setting of its own, or exactly the behaviour of Tetris or single (as just
// tuned), greedy, or fixed SP 8 or 16. Five rounds of requests give two criteria:
//  - The possible excess of P50 and P99 over Tetris, and over the best of all of these: the upper
//    end of a one-sided 95 % confidence interval over the rounds, 0 if it is below. The least sum
//    wins. Tetris's own mode never exceeds Tetris, so a risky setting wins against it only if it
//    saves more of the loss against another.
//  - Among those with sum 0, the gain over Tetris: P50 x P99 x P99, geometric means. P99 counts
//    twice because it is harder to lower.
// A setting whose average exceeds Tetris in one percentile is never taken. Own settings are found
// by descent along one coordinate after the other, twice. With `tune_rolling` false, that table
// keeps its defaults.
Profile ProfileLoads(const std::vector<double>& loads, const WorkloadOfLoad& workload,
                     const LatencyModel& model, const Cluster& cluster, bool tune_rolling);

}  // namespace skein::scheduler
