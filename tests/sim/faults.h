// Which faults strike the processes of a scenario, and when. Part of MakeScenario and its like.
#pragma once

#include <cstdint>

#include "tests/sim/scenario.h"
#include "tests/sim/virtual_time.h"

namespace skein::sim {

void MakeFaults(Random& random, Scenario& scenario);
void MakeLongFaults(Random& random, Scenario& scenario);  // over half a minute
void MakeDeaths(Random& random, Scenario& scenario);      // of a worker every now and then

// Each draws from randomness of its own, so that what else a seed decides stays as it is.
void MakeStandstills(uint64_t seed, Scenario& scenario);
void MakeHangs(uint64_t seed, Scenario& scenario);
void MakeMoreFaults(uint64_t seed, Scenario& scenario);  // duplicates, refusals, cuts, a router's
void MakeClockJump(uint64_t seed, Scenario& scenario);

}  // namespace skein::sim
