// The load-dependent settings of the rolling planner (rolling.h), found by simulation
// (rate_profiler.h).
#pragma once

#include "scheduler/plan/rolling/commit_queue.h"

namespace skein::scheduler {

// The defaults are for an untuned planner: near the profiler's result at half the rate that a
// cluster sustains, where neither idle instances nor a queue dominate. They are the only defaults,
// for a planner without a table and for a table's row without values.
struct RollingTuning {
  // The price of an instance-second, in seconds of a request's time, in [0, 1): its cost for future
  // requests. Rises with load.
  double price = 0.1;
  // Deadline: arrival + stretch x the request's own shortest time + slack x the mean shortest time
  // of a request. Latest start: the deadline minus the shortest time of the remaining tokens.
  double slack = 2;
  double stretch = 1;
  // The cost of an instance-second for waiting requests: this factor times their delay if the whole
  // cluster shared it (1 / instances each).
  double waiting_weight = 4;
  // A request that one node can finish within this time after its arrival stays on one node.
  double calm_s = 0;
  CommitMode commit;  // other than kNone: the other settings have no effect

  bool operator==(const RollingTuning&) const = default;
};

}  // namespace skein::scheduler
