// What the scenarios of several kinds of worlds have in common. Part of MakeScenario and its like.
#pragma once

#include <cstdint>

#include "tests/sim/scenario.h"
#include "tests/sim/virtual_time.h"

namespace skein::sim {

struct Speeds {
  TimeUs delay_most_us = 3000;  // of the network
  TimeUs step_least_us = 200, step_most_us = 2000;
};
void MakeSpeeds(Random& random, const Speeds& speeds, Scenario& scenario);

// Samplings, and clients that fail alone. Each draws from randomness of its own (workload.h).
void MakeAnswers(uint64_t seed, Scenario& scenario);

void MakeStaging(Random& random, Scenario& scenario);

// All that may break everywhere (faults.h); only the first of it draws from `random`.
void MakeAllFaults(uint64_t seed, Random& random, Scenario& scenario);

}  // namespace skein::sim
