// Worlds of seconds in which something works, but badly: devices whose steps take many times
// longer, steps that hang, clients that do not read. The rest has room to spare, so nothing
// excuses a client's error, and every answer is the one of its request alone.
#pragma once

#include <cstdint>

#include "scheduler/orchestrator/orchestrator_core.h"
#include "tests/sim/scenario.h"

namespace skein::sim {

// Four or five decode and four prefill workers, and thrice as many clients as elsewhere. One after
// the other gets slow, 4 to 20 times; in half of the worlds a step hangs in between.
Scenario MakeGrayScenario(uint64_t seed);

// Every now and then half of the clients do not read for up to two seconds, while in half of the
// worlds a decode worker dies or drains.
Scenario MakeUnreadScenario(uint64_t seed);

// In a world with a gray device: when an instance is slow, suspect and set aside, and how soon its
// step hangs, as the seed chooses, far sooner than by default. In others it changes nothing.
void JudgeBySeed(const Scenario& scenario, scheduler::OrchestratorConfig* config);

}  // namespace skein::sim
