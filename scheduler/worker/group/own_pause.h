// How long the sequences that a rank runs by itself pause after a bind (OwnSequences::kHardPreempt,
// Flying Serving, section 5). Workers and the simulator have it from here. Microseconds.
#pragma once

#include "scheduler/base/formation_messages.h"
#include "scheduler/base/time.h"

namespace skein::scheduler {

inline constexpr TimeUs kOwnPauseUs = 60 * kSecondUs;

// Whether they pause while the group has something to run. Afterwards both kinds take turns
// (StepShare). REQUIRES: the group is bound, and is not released.
constexpr bool OwnPauses(OwnSequences own, TimeUs since_bind_us, TimeUs longest_us = kOwnPauseUs) {
  return own == OwnSequences::kHardPreempt && since_bind_us < longest_us;
}

}  // namespace skein::scheduler
