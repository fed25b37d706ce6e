// Worlds whose decode workers bind and release while their requests run.
#pragma once

#include <cstdint>

#include "tests/sim/scenario.h"

namespace skein::sim {

// Two to eight decode workers, in which bursts and quiet spells alternate for some seconds. The
// orchestrator decides about formations, by a profile that gains, or operators do at random times,
// or both. Where there are faults, decode workers die, stand still, drain and fail more often than
// others, ranks are cut off from one another, and groups cannot be made or break.
Scenario MakeFormationScenario(uint64_t seed);
// The same with requests that fit no decode worker, but a group of two or four, which computes them
// from their first token on.
Scenario MakeLongRequestsScenario(uint64_t seed);

}  // namespace skein::sim
