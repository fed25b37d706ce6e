// What of the rolling planner (rolling.h) depends on the load and is found by simulation
// (rate_profiler.h).
#pragma once

#include "scheduler/plan/rolling/commit_queue.h"

namespace skein::scheduler {

// The defaults serve a planner that nobody tuned: near what the profiler finds at half of the rate
// that a cluster sustains, where neither idle instances nor a queue decide alone. There is one set
// of them, for a planner made without a table and for a table's row without values.
struct RollingTuning {
  // Seconds of a request's time that an instance-second is worth, in [0, 1): what it takes from
  // requests still to come. It rises with load.
  double price = 0.1;
  // Deadline: arrival + stretch x the request's own shortest time + slack x the mean shortest time
  // of a request. The latest start is the deadline less the shortest time of what is left.
  double slack = 2;
  double stretch = 1;
  // What an instance-second takes from those that wait: this many times the time by which it would
  // delay them if the whole cluster shared the delay (1 / instances each).
  double waiting_weight = 4;
  // A request that one node can finish within this time of its arrival stays on one node.
  double calm_s = 0;
  CommitMode commit;  // other than kNone: the others have no effect

  bool operator==(const RollingTuning&) const = default;
};

}  // namespace skein::scheduler
