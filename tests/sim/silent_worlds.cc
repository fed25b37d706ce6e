#include "tests/sim/silent_worlds.h"

#include <algorithm>

#include "tests/sim/single_faults.h"
#include "tests/sim/virtual_time.h"

namespace skein::sim {

Scenario MakeSilentScenario(uint64_t seed) {
  Scenario scenario = MakeUnbrokenScenario(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 151);
  const TimeUs unit_us = scenario.time_scale * scheduler::kMillisecondUs;
  TimeUs at_us = random.Between(300, 2000) * scheduler::kMillisecondUs;
  while (at_us < scenario.clients.back().arrives_us) {
    Fault fault{.kind = FaultKind::kSilence,
                .worker = RouterAt(static_cast<int>(random.Between(0, scenario.routers - 1))),
                .at_us = at_us,
                .lasts_us = random.Between(20, random.Chance(0.5) ? 300 : 1500) * unit_us,
                .to = scenario.prefill_workers +
                      static_cast<int>(random.Between(0, scenario.decode_workers - 1))};
    scenario.faults.push_back(fault);
    at_us += fault.lasts_us + random.Between(50, 300) * unit_us;
  }
  scenario.heals_us = std::max(scenario.heals_us, at_us);
  return scenario;
}

}  // namespace skein::sim
