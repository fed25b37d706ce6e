// Random plans, for tests that look for faults: any chunks, on any growing sets of instances, on
// any nodes. Not efficient.
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// An instance with at least this queue time does not exist.
inline constexpr double kNoInstanceS = 1e9;

// One to four chunks whose sizes are SP sizes of `model`; the same seed gives the same plan.
// REQUIRES an instance with a queue time below kNoInstanceS, an SP size 1, prompt_tokens >= 1.
PrefillPlan PlanRandom(const LatencyModel& model, absl::Span<const double> queue_s,
                       int64_t prompt_tokens, uint64_t seed);

}  // namespace skein::scheduler
