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

// What one improvement rate gave at one load.
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

// For each load (ascending, positive): the improvement rate with the least mean TTFT; the rolling
// setting that in the worst of five rounds is least behind the best P50 and P99 TTFT of Tetris and
// single (as just tuned), greedy and fixed SP 8 and 16, and of those that are behind in neither the
// one with the least P50 x P99. Doing exactly as one of these is a candidate too. `tune_rolling`
// false leaves that table as it is by default.
Profile ProfileLoads(const std::vector<double>& loads, const WorkloadOfLoad& workload,
                     const LatencyModel& model, const Cluster& cluster, bool tune_rolling);

}  // namespace skein::scheduler
