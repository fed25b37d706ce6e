// What the clients of a scenario ask, and how they behave. Part of MakeScenario and its like.
#pragma once

#include <cstdint>

#include "tests/sim/scenario.h"
#include "tests/sim/virtual_time.h"

namespace skein::sim {

// Clients, probes and the time of healing.
void MakeWorkload(Random& random, Scenario& scenario);
void MakeLongWorkload(Random& random, Scenario& scenario);  // for half a minute
// For some seconds bursts and quiet spells, each of some tenths of a second.
void MakeFormationWorkload(Random& random, Scenario& scenario);
// For two seconds so many prompts, most of them long, that handoffs are always on their way.
void MakeSteadyWorkload(Random& random, Scenario& scenario);
// For four seconds about 1,450 short prompts with short answers.
void MakeShortWorkload(Random& random, Scenario& scenario);
void MakeSpWorkload(Random& random, Scenario& scenario);  // longer prompts, more cancels

// The sampling parameters of all clients and probes; some clients whose sequences fail. Each draws
// from randomness of its own, so that what else a seed decides stays as it is.
void MakeSamplings(uint64_t seed, Scenario& scenario);
void MakePoison(uint64_t seed, Scenario& scenario);

}  // namespace skein::sim
