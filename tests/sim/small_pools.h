// Worlds whose decode instances have little KV memory, so that sequences are preempted and resumed
// again and again.
#pragma once

#include "tests/sim/scenario.h"

namespace skein::sim {

// Longer answers, some of them with a higher priority than others, and decode instances that have
// room for the longest of these requests and a few blocks more.
void ShrinkPools(Scenario* scenario);

}  // namespace skein::sim
