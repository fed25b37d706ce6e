// Improvement rates from the prompts that a cluster has seen: Tetris section 5.1, whose profiler
// (rate_profiler.h) makes the table offline from a given distribution of lengths. Pure; takes
// seconds, so a service calls it beside its core.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/improvement_rate.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"
#include "scheduler/simulator/prompt_history.h"

namespace skein::scheduler {

// With fewer prompts the longest ones, which decide the mean TTFT, are too rare to tune by: of the
// paper's traces, the 99th percentile of 1,000 lengths is the tenth longest.
inline constexpr int64_t kRetunePromptsMin = 1000;
inline constexpr size_t kRetuneRowsMax = 12;

// The loads to tune for: those seen, thinned evenly to kRetuneRowsMax with the least and the most
// among them. REQUIRES ascending loads.
std::vector<double> RetuneLoads(std::vector<double> seen);

// A row for each of these loads: the rate with the least mean TTFT of simulated Poisson arrivals,
// with the lengths of `history`. `stopped` is asked before each load. FAILED_PRECONDITION: fewer
// prompts than kRetunePromptsMin, or no complete window of arrivals; CANCELLED: stopped. REQUIRES a
// cluster at least as large as the model's smallest SP size.
absl::StatusOr<ImprovementRateTable> RetuneRates(const PromptHistory& history,
                                                 const LatencyModel& model, const Cluster& cluster,
                                                 const std::function<bool()>& stopped);

// The largest difference between the rates that the two give, over the loads of both.
double LargestChange(const ImprovementRateTable& before, const ImprovementRateTable& after);

}  // namespace skein::scheduler
