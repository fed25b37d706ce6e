// Worlds of several routers. Clients are dealt over them; a router that stands still, drains, dies,
// is cut off or whose clock jumps concerns only its own.
#pragma once

#include <cstdint>

#include "tests/sim/scenario.h"

namespace skein::sim {

// A world of MakeScenario, MakeSpScenario or MakeLongScenario with two to four routers, of which
// some break, too, unless it is faultless.
Scenario MakeSeveralRoutersScenario(uint64_t seed);
// A world of MakeUnbrokenScenario with three routers, of which one breaks, up to three times, and
// nothing else: it dies, stands still, or its clock jumps; it is cut off from the orchestrator or
// from one decode worker, in one direction or both; or it is refused there, until the world heals.
// Only its own clients may get an error, and only by its death.
Scenario MakeOneRouterScenario(uint64_t seed);

}  // namespace skein::sim
