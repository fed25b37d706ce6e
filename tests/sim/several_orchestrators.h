// Worlds of several orchestrators that elect a leader in a store. The leader dies, stands still, is
// cut off, or its clock jumps; the store is lost for a while, or stands still. Another one leads
// then, and loses nothing that was submitted; two never lead at once (OrchestratorProcess).
#pragma once

#include <cstdint>

#include "tests/sim/scenario.h"

namespace skein::sim {

// A world of MakeSeveralRoutersScenario with two or three orchestrators, some of which break, too,
// unless it is faultless.
Scenario MakeSeveralOrchestratorsScenario(uint64_t seed);
// A world of MakeUnbrokenScenario with two or three orchestrators, in which one thing breaks: the
// leader, its path to the store, or the store. No client may get an error.
Scenario MakeOneLeaderScenario(uint64_t seed);
// The same, and what breaks is the way of all workers and routers to the leader, for longer than
// routers wait for one, while the store is reached; or, in each fourth world, to all orchestrators,
// for less than that.
inline bool DeafensAll(uint64_t seed) { return seed % 4 == 3; }
Scenario MakeDeafLeaderScenario(uint64_t seed);
// The same, but one leader after another resigns and ends, as at SIGTERM, and is back later.
Scenario MakeResigningScenario(uint64_t seed);
// A world of MakeFormationScenario with two or three orchestrators. Unless it is faultless leaders
// resign, and break as in MakeSeveralOrchestratorsScenario.
Scenario MakeFormationsOfSeveralScenario(uint64_t seed);

}  // namespace skein::sim
