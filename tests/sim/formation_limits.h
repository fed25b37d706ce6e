// The limits of formations in a world: what its orchestrator and decode workers are configured
// with, and so what its deadlines follow from.
#pragma once

#include "scheduler/orchestrator/groups/formation_switch.h"
#include "scheduler/worker/group/feed_lead.h"
#include "tests/sim/scenario.h"

namespace skein::sim {

struct FormationTimes {
  scheduler::orchestrator::FormationLimits orders;  // the orchestrator's
  scheduler::FeedLimits feed;                       // a rank's
  TimeUs step_max_us = 0;                           // of a step of the group, at a rank
  TimeUs lease_us = 0;                              // of an instance
};

// A tenth of the product's, times time_scale.
inline FormationTimes FormationTimesOf(const Scenario& scenario) {
  const TimeUs unit_us = scenario.time_scale * scheduler::kMillisecondUs;
  return {.orders = {.prepare_us = 200 * unit_us,
                     .commit_us = 500 * unit_us,
                     .release_us = 1500 * unit_us,
                     .end_us = 500 * unit_us,
                     .leave_us = 500 * unit_us,
                     .ready_us = 200 * unit_us,
                     .set_us = 500 * unit_us},
          .feed = {.answer_us = 200 * unit_us, .step_us = 400 * unit_us},
          .step_max_us = 300 * unit_us,
          .lease_us = scenario.instance_lease_ms * unit_us};
}

}  // namespace skein::sim
