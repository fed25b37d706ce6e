// Checks the invariants of plan.h. For tests, and for processes that get plans from others.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// INVALID_ARGUMENT names the chunk and the violated invariant's number. Times are compared with a
// tolerance of a nanosecond. Also refused: instances outside the cluster, and SP sizes that the
// model lacks.
absl::Status CheckPlan(const LatencyModel& model, const Cluster& cluster,
                       absl::Span<const double> queue_s, int64_t prompt_tokens,
                       const PrefillPlan& plan);

}  // namespace skein::scheduler
