// Worlds in which the token streams alone fall silent: what a router and a decode worker send each
// other on them vanishes, while both live and all else between them and the orchestrator works. So
// only a keepalive, or the end of the silence, tells either of them.
#pragma once

#include <cstdint>

#include "tests/sim/scenario.h"

namespace skein::sim {

// A world of MakeUnbrokenScenario with one silence after another, some of them longer than any
// keepalive. No client may get an error.
Scenario MakeSilentScenario(uint64_t seed);

}  // namespace skein::sim
