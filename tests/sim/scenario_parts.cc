#include "tests/sim/scenario_parts.h"

#include "tests/sim/faults.h"
#include "tests/sim/workload.h"

namespace skein::sim {

void MakeSpeeds(Random& random, const Speeds& speeds, Scenario& scenario) {
  scenario.delay_max_us = random.Between(60, speeds.delay_most_us);
  scenario.compute_at_end = random.Chance(0.5);
  scenario.step_us = random.Between(speeds.step_least_us, speeds.step_most_us);
}

void MakeAnswers(uint64_t seed, Scenario& scenario) {
  MakeSamplings(seed, scenario);
  MakePoison(seed, scenario);
}

void MakeStaging(Random& random, Scenario& scenario) {
  scenario.staging_buffers = static_cast<int>(random.Between(1, 3));
  scenario.staging_slots = static_cast<int32_t>(random.Between(1, 8));
}

void MakeAllFaults(uint64_t seed, Random& random, Scenario& scenario) {
  MakeFaults(random, scenario);
  MakeStandstills(seed, scenario);
  MakeHangs(seed, scenario);
  MakeMoreFaults(seed, scenario);
  MakeClockJump(seed, scenario);
}

}  // namespace skein::sim
