// Worlds whose decode instances have little KV memory, so that sequences are preempted and resumed
// again and again.
#pragma once

#include "tests/sim/scenario.h"

namespace skein::sim {

// Longer answers, some of them with a higher priority than others, and decode instances that have
// room for the longest of these requests and a few blocks more.
void ShrinkPools(Scenario* scenario);

// A world of MakeSpScenario in which there is as little decode room as with ShrinkPools, and two
// prefill workers have blocks for one long prompt together. They slow down and the orchestrator
// dies, again and again. So requests are planned again where their older epoch still holds blocks,
// and younger ones may take what it leaves.
Scenario MakeNoRoomScenario(uint64_t seed);

}  // namespace skein::sim
