// Time in tests of cores.
#pragma once

#include <algorithm>

#include "scheduler/base/time.h"

namespace skein::scheduler {

// Time passes until `end` for a core that gets its ticks in time: `tick` runs whenever one is due
// by `next_deadline`, and at the end.
template <class NextDeadline, class Tick>
void PassUntil(TimeUs end, TimeUs* now, NextDeadline next_deadline, Tick tick) {
  for (TimeUs next = next_deadline(); next < end; next = next_deadline()) {
    *now = std::max(*now, next);
    tick();
  }
  *now = end;
  tick();
}

}  // namespace skein::scheduler
