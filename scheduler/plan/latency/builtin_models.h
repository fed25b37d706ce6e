// Latency models that come with the planner.
#pragma once

#include "absl/types/span.h"
#include "scheduler/plan/latency/fit.h"
#include "scheduler/plan/latency/latency_model.h"

namespace skein::scheduler {

// Tetris, Table 1: prefill of LLaMA3-8B on A100 GPUs, 4k ... 256k tokens (k = 1024) on SP 1 ... 16,
// without the cell that ran out of memory. Without history.
absl::Span<const LatencySample> Llama3_8bA100Samples();

// Fitted to these samples, with c = 2 d. Meets all cells within 6.3 %, those of SP 1 and 2 within
// 1.1 %.
const LatencyModel& Llama3_8bA100();

// LLaMA3-70B where an instance is four A100 GPUs (TP 4), SP 1 ... 16. No time of it is published,
// so nothing is fitted to points of its own: it follows from the 8B model's coefficients, by the
// work of a token and of a pair of tokens on a device, the all-reduces of TP, and the number of
// layers. bench/planner/README.md has the derivation.
const LatencyModel& Llama3_70bA100Tp4();

}  // namespace skein::scheduler
