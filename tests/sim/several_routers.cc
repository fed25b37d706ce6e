#include "tests/sim/several_routers.h"

#include <utility>

#include "tests/sim/virtual_time.h"

namespace skein::sim {
namespace {

using scheduler::kMillisecondUs;

Scenario MakeBase(uint64_t seed) {
  switch (seed % 3) {
    case 0:
      return MakeScenario(seed / 3);
    case 1:
      return MakeSpScenario(seed / 3);
    default:
      return MakeLongScenario(seed / 3);
  }
}

// What the base breaks is of the first router, or of none.
void BreakRouter(Random& random, Scenario* scenario) {
  constexpr FaultKind kKinds[] = {FaultKind::kRouterCrash, FaultKind::kStandstill,
                                  FaultKind::kOrderedDrain, FaultKind::kClockJump, FaultKind::kCut};
  Fault fault{.kind = kKinds[random.Between(0, 4)],
              .worker = RouterAt(static_cast<int>(random.Between(0, scenario->routers - 1))),
              .at_us = random.Between(50 * kMillisecondUs, scenario->heals_us),
              .lasts_us = random.Between(20, 900) * scenario->time_scale * kMillisecondUs};
  if (fault.kind == FaultKind::kCut) {
    const int64_t workers = scenario->prefill_workers + scenario->decode_workers;
    fault.to = static_cast<int>(random.Between(kTheOrchestrator, workers - 1));
    if (random.Chance(0.5)) std::swap(fault.worker, fault.to);
  }
  scenario->faults.push_back(fault);
}

}  // namespace

Scenario MakeSeveralRoutersScenario(uint64_t seed) {
  Scenario scenario = MakeBase(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 131);
  scenario.routers = static_cast<int>(random.Between(2, 4));
  if (scenario.faultless) return scenario;
  for (int64_t i = random.Between(1, 4); i > 0; --i) BreakRouter(random, &scenario);
  return scenario;
}

}  // namespace skein::sim
