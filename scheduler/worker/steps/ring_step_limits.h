#pragma once

#include <algorithm>

#include "scheduler/base/time.h"

namespace skein::scheduler {

// The time that a ring step may take, the wait for its other members included: a multiple of what
// its whole chunk is estimated to take with that wait. After it, members that wait for one that
// hangs are free again, and the one that hangs is known because its engine does not return.
struct RingStepLimits {
  static constexpr TimeUs kFactor = 20;  // by which an estimate may be too low

  TimeUs max_us = 1200 * kSecondUs;
  TimeUs min_us = 10 * kSecondUs;  // unless max_us is less

  // `estimated_us` as PlanChunk says; 0: unknown.
  TimeUs For(TimeUs estimated_us) const {
    if (estimated_us <= 0 || estimated_us > max_us / kFactor) return max_us;
    return std::min(max_us, std::max(min_us, kFactor * estimated_us));
  }
};

}  // namespace skein::scheduler
