// Worlds of several routers. Clients are dealt over them; a router that stands still, drains, dies,
// is cut off or whose clock jumps concerns only its own.
#pragma once

#include <cstdint>

#include "tests/sim/scenario.h"

namespace skein::sim {

// A world of MakeScenario, MakeSpScenario or MakeLongScenario with two to four routers, of which
// some break, too, unless it is faultless.
Scenario MakeSeveralRoutersScenario(uint64_t seed);

}  // namespace skein::sim
