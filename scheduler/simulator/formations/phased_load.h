// Requests whose rate alternates between quiet phases and bursts (Flying Serving, section 6.1.3).
// The same seed gives the same requests everywhere.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

enum class LoadPhase {
  kQuiet,
  kBurst,
  kAfter,  // the first half of a quiet phase, when what a burst has queued is still there
};

struct GroupRequest {
  TimeUs arrival_us = 0;  // ascending
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int32_t priority = 0;
  LoadPhase phase = LoadPhase::kQuiet;
};

struct PhasedLoad {
  // Requests per second: each phase has its own rate, uniform in the range. Arrivals are Poisson.
  double quiet_rate_min = 2, quiet_rate_max = 5;
  double burst_rate_min = 10, burst_rate_max = 30;
  double quiet_s = 60, burst_s = 15;  // 0: no such phases
  int64_t requests = 4000;
  // Uniform.
  int64_t prompt_min = 1000, prompt_max = 7000;
  int64_t output_min = 100, output_max = 700;
  double priority_share = 0;  // of the requests, with priority 1
  double long_share = 0;      // of the requests, with a prompt of long_prompt tokens
  int64_t long_prompt = 0;
  uint64_t seed = 1;
};
// INVALID_ARGUMENT names the field.
absl::Status CheckPhasedLoad(const PhasedLoad& load);

// REQUIRES CheckPhasedLoad(load).ok(). Lengths and arrivals use separate streams of the seed.
std::vector<GroupRequest> GeneratePhasedLoad(const PhasedLoad& load);

}  // namespace skein::scheduler
