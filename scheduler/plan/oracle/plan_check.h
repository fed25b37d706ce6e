// Checks the invariants of plan.h. For tests, and for processes that receive plans from others.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// INVALID_ARGUMENT names the chunk and the number of the violated invariant. Times are compared to
// within a nanosecond. Instances that are not in the cluster, and numbers of them that the model
// has no size for, are refused too.
absl::Status CheckPlan(const LatencyModel& model, const Cluster& cluster,
                       absl::Span<const double> queue_s, int64_t prompt_tokens,
                       const PrefillPlan& plan);

}  // namespace skein::scheduler
