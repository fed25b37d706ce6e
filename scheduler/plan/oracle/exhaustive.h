// The shortest possible time to first token, by exhaustive search. Tests and bench/planner compare
// CdspPlanner with it. Time grows as grid ^ (SP sizes - 1).
#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "scheduler/plan/latency/latency_model.h"
#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// Searches all plans whose instance sets grow, stay within one node up to its size, and are whole
// nodes above: every first node, every sequence of SP sizes, every cut of the prompt at multiples
// of prompt_tokens / grid. Of the sets of one size in a node, only the soonest free one is tried:
// it is ready no later than any other and contains the soonest free smaller ones. REQUIRES
// node_size is a power of two and divides the instances, grid >= 1.
double ExhaustiveTtft(const LatencyModel& model, const Cluster& cluster,
                      absl::Span<const double> queue_s, int64_t prompt_tokens, int grid);

}  // namespace skein::scheduler
