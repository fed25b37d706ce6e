// The prefill pool, simulated: chunks run on instances, one at a time each, for the latency model's
// time. Two kinds of policy:
//  - committing ones plan a request when it arrives, from each instance's queue time. The plan's
//    order binds, its times do not: a chunk starts as soon as all of its instances have done what
//    was committed before it.
//  - the rolling planner decides at every event which chunks start now.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "scheduler/base/time.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"
#include "scheduler/plan/rolling/rolling.h"
#include "scheduler/plan/rolling/rolling_table.h"
#include "scheduler/simulator/workload.h"

namespace skein::scheduler {

struct PrefillOutcome {
  double start_s = 0;  // of the first chunk
  double end_s = 0;    // of the last one: the first token
};

struct PrefillRun {
  std::vector<PrefillOutcome> outcomes;  // as the requests
  double busy_instance_s = 0;
  int64_t chunks = 0;
  double end_s = 0;  // the last chunk of all
};

// Plans `request` that arrives now; queue_s[i] is the time until instance i is free.
using CommittingPlanner = std::function<void(const SimRequest& request,
                                             absl::Span<const double> queue_s, PrefillPlan* plan)>;

// Sees every chunk in the order of the starts decided, with its absolute times. For tests.
using ChunkObserver = std::function<void(size_t request, const ChunkPlan& chunk)>;

// REQUIRES CheckWorkload(requests).
PrefillRun RunCommitting(const std::vector<SimRequest>& requests, const LatencyModel& model,
                         const Cluster& cluster, const CommittingPlanner& planner,
                         const ChunkObserver& observer = nullptr);
// `planner` knows no request. `selector` tunes it as the load changes; null: it stays as it is.
PrefillRun RunRolling(const std::vector<SimRequest>& requests, RollingPlanner* planner,
                      RollingSelector* selector = nullptr, const ChunkObserver& observer = nullptr);

TimeUs ToMicroseconds(double seconds);

}  // namespace skein::scheduler
