// Whether an instance's engine is suspect: its step in flight has run much longer than estimated,
// so it hangs or has become very slow. A suspect instance gets nothing new; the next report may
// clear it. After a longer time it hangs, and keeps nothing either. The worker itself gives its
// engine up later (EngineWatch).
#pragma once

#include "scheduler/base/time.h"

namespace skein::scheduler {

inline constexpr TimeUs kSuspectStepMinUs = 2 * kSecondUs;
inline constexpr TimeUs kSuspectUnknownUs = 10 * kSecondUs;  // of the first step
inline constexpr TimeUs kSuspectStepFactor = 20;

// `age_us` of the step in flight; 0: none. `estimate_us` of such a step; 0: unknown.
inline bool IsStepSuspect(TimeUs age_us, TimeUs estimate_us) {
  if (estimate_us <= 0) return age_us > kSuspectUnknownUs;
  // Divides first, so that no estimate overflows.
  return age_us > kSuspectStepMinUs && age_us / kSuspectStepFactor > estimate_us;
}

// Whether it hangs, as far as anyone can wait: its requests then go on elsewhere. `bound_us`: the
// age from which on that may be so, three times as much for the first step; 0: never.
inline bool IsStepHung(TimeUs age_us, TimeUs estimate_us, TimeUs bound_us) {
  if (bound_us <= 0 || !IsStepSuspect(age_us, estimate_us)) return false;
  return age_us >= (estimate_us <= 0 ? 3 * bound_us : bound_us);
}

}  // namespace skein::scheduler
