#include "tests/sim/several_routers.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tests/sim/single_faults.h"
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

// Of a client of this router, or of any, if it has none.
TimeUs FirstArrivalAt(int router, const Scenario& scenario) {
  for (const ClientPlan& client : scenario.clients) {
    if (RouterNumberOf(*client.spec, scenario) == router) return client.arrives_us;
  }
  return scenario.clients.front().arrives_us;
}

}  // namespace

// A decode worker that its router never reached does not see its death, and keeps the blocks until
// nobody has asked for them for a lease. So a router that dies is not cut off there, too.
Scenario MakeOneRouterScenario(uint64_t seed) {
  Scenario scenario = MakeUnbrokenScenario(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 137);
  scenario.routers = 3;
  const int number = static_cast<int>(random.Between(0, scenario.routers - 1));
  const int router = RouterAt(number);
  const int decode =
      scenario.prefill_workers + static_cast<int>(random.Between(0, scenario.decode_workers - 1));
  constexpr FaultKind kKinds[] = {FaultKind::kRouterCrash, FaultKind::kStandstill,
                                  FaultKind::kClockJump,   FaultKind::kCut,
                                  FaultKind::kCut,         FaultKind::kRefusal};
  auto kind = static_cast<int64_t>(seed % std::size(kKinds));  // of the first one
  const bool dies = kind == 0;
  const TimeUs unit_us = scenario.time_scale * kMillisecondUs;
  TimeUs at_us = FirstArrivalAt(number, scenario);
  at_us += random.Between(0, dies ? 100 : 2000) * kMillisecondUs;  // a client loses it
  for (int64_t i = random.Between(1, 3); i > 0; --i) {
    const int64_t next = random.Between(dies ? 0 : 1, dies ? 3 : 5);
    Fault fault{.kind = kKinds[std::exchange(kind, next)], .worker = router, .at_us = at_us};
    fault.lasts_us = random.Between(20, 900) * unit_us;
    scenario.heals_us = std::max(scenario.heals_us, at_us + fault.lasts_us);
    const bool of_orchestrator = random.Chance(0.5) || dies;
    if (fault.kind == FaultKind::kCut) fault.to = of_orchestrator ? kTheOrchestrator : decode;
    if (fault.kind == FaultKind::kRefusal) fault.to = decode;
    if (fault.kind == FaultKind::kCut && random.Chance(0.5)) std::swap(fault.worker, fault.to);
    scenario.faults.push_back(fault);
    if (fault.kind == FaultKind::kCut && random.Chance(0.5)) {  // both ways
      std::swap(fault.worker, fault.to);
      scenario.faults.push_back(fault);
    }
    at_us += fault.lasts_us + random.Between(200, 800) * unit_us;
  }
  for (Fault& fault : scenario.faults) {
    if (fault.kind == FaultKind::kRefusal) fault.lasts_us = scenario.heals_us - fault.at_us;
  }
  return scenario;
}

Scenario MakeSeveralRoutersScenario(uint64_t seed) {
  Scenario scenario = MakeBase(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 131);
  scenario.routers = static_cast<int>(random.Between(2, 4));
  if (scenario.faultless) return scenario;
  for (int64_t i = random.Between(1, 4); i > 0; --i) BreakRouter(random, &scenario);
  return scenario;
}

}  // namespace skein::sim
