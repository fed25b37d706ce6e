// Simulates the prefill pool: each instance runs one chunk at a time, for the latency model's time.
// There are two kinds of policy:
//  - Committing policies plan a request when it arrives, from each instance's queue time. The
//    plan's order is fixed, its times are not: a chunk starts as soon as all its instances have
//    done the work committed before it.
//  - The rolling planner decides at every event which chunks start now.
// Each chunk runs in the (SP, TP) that its instances allow, as the orchestrator chooses it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
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
  double end_s = 0;    // of the last one, which gives the first token
};

struct PrefillRun {
  std::vector<PrefillOutcome> outcomes;  // in the order of the requests
  double busy_instance_s = 0;
  int64_t chunks = 0;
  std::map<std::pair<int, int>, int64_t> shapes;  // the same by (SP, TP)
  double end_s = 0;                               // end of the last chunk

  void CountChunk(const ChunkPlan& chunk);
};

// Plans `request`, which arrives now; queue_s[i] is the time until instance i is free.
using CommittingPlanner = std::function<void(const SimRequest& request,
                                             absl::Span<const double> queue_s, PrefillPlan* plan)>;

// Gets every chunk in the order of decided starts, with absolute times. For tests.
using ChunkObserver = std::function<void(size_t request, const ChunkPlan& chunk)>;

// REQUIRES CheckWorkload(requests).
PrefillRun RunCommitting(const std::vector<SimRequest>& requests, const LatencyModel& model,
                         const Cluster& cluster, const CommittingPlanner& planner,
                         const ChunkObserver& observer = nullptr);
// `planner` is empty. `selector` tunes it as the load changes; null: no tuning.
PrefillRun RunRolling(const std::vector<SimRequest>& requests, RollingPlanner* planner,
                      RollingSelector* selector = nullptr, const ChunkObserver& observer = nullptr);

TimeUs ToMicroseconds(double seconds);

}  // namespace skein::scheduler
