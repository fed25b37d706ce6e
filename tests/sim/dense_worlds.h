// Worlds of four seconds with many short requests and a fault every few milliseconds, so that a
// search meets many faults of each kind in little real time.
#pragma once

#include <cstdint>

#include "tests/sim/scenario.h"

namespace skein::sim {

Scenario MakeDenseScenario(uint64_t seed);

}  // namespace skein::sim
