// Time for tests of cores.
#pragma once

#include <algorithm>

#include "scheduler/base/time.h"

namespace skein::scheduler {

// Advances time to `end` with ticks on time: `tick` runs whenever `next_deadline` is due, and at
// the end.
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
