#include "tests/sim/several_orchestrators.h"

#include <algorithm>
#include <utility>

#include "tests/sim/formation_worlds.h"
#include "tests/sim/several_routers.h"
#include "tests/sim/single_faults.h"
#include "tests/sim/virtual_time.h"

namespace skein::sim {
namespace {

using scheduler::kMillisecondUs;

// One thing of the leader and the store, or, with `peers`, of the leader and one of the others.
void BreakLeader(Random& random, TimeUs at_us, bool peers, Scenario* scenario) {
  const TimeUs lasts_us = random.Between(20, 900) * scenario->time_scale * kMillisecondUs;
  Fault fault{.worker = kTheLeader, .at_us = at_us, .lasts_us = lasts_us};
  switch (random.Between(0, peers ? 6 : 5)) {
    case 0:
      fault.kind = FaultKind::kOrchestratorCrash;
      break;
    case 1:
      fault.kind = FaultKind::kStandstill;
      break;
    case 2:
      fault.kind = FaultKind::kClockJump;
      break;
    case 3:
      fault.kind = FaultKind::kStoreLoss;
      fault.worker = kTheStore;
      break;
    case 4:
      fault.kind = FaultKind::kStandstill;
      fault.worker = kTheStore;
      break;
    default:
      fault.kind = FaultKind::kCut;
      fault.to = kTheStore;
  }
  if (fault.kind == FaultKind::kCut && peers && random.Chance(0.5)) {
    const int64_t workers = scenario->prefill_workers + scenario->decode_workers;
    fault.to = static_cast<int>(random.Between(0, workers));
    if (fault.to == workers) fault.to = kTheRouter;
  }
  scenario->faults.push_back(fault);
  if (fault.kind != FaultKind::kCut || random.Chance(0.3)) return;
  std::swap(fault.worker, fault.to);
  if (random.Chance(0.5)) {
    scenario->faults.push_back(fault);  // both ways
  } else {
    scenario->faults.back() = fault;
  }
}

// What all workers and routers send to this one, and in some worlds what it sends to them.
void Deafen(int orchestrator, bool both_ways, Fault fault, Scenario* scenario) {
  fault.kind = FaultKind::kCut;
  const auto cut = [&](int peer) {
    fault.worker = peer;
    fault.to = orchestrator;
    scenario->faults.push_back(fault);
    std::swap(fault.worker, fault.to);
    if (both_ways) scenario->faults.push_back(fault);
  };
  for (int i = 0; i < scenario->prefill_workers + scenario->decode_workers; ++i) cut(i);
  for (int i = 0; i < scenario->routers; ++i) cut(RouterAt(i));
}

// Another one leads long before the next resignation.
void LetLeadersResign(Random& random, Scenario* scenario) {
  const TimeUs unit_us = scenario->time_scale * kMillisecondUs;
  TimeUs at_us = random.Between(100, 400) * unit_us;
  for (int64_t i = random.Between(1, 3); i > 0 && at_us < scenario->heals_us; --i) {
    Fault fault{.kind = FaultKind::kResign, .worker = kTheLeader, .at_us = at_us};
    fault.lasts_us = random.Between(150, 600) * unit_us;
    scenario->faults.push_back(fault);
    at_us += fault.lasts_us + random.Between(100, 600) * unit_us;
  }
}

}  // namespace

Scenario MakeSeveralOrchestratorsScenario(uint64_t seed) {
  Scenario scenario = MakeSeveralRoutersScenario(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 139);
  scenario.orchestrators = static_cast<int>(random.Between(2, 3));
  if (scenario.faultless) return scenario;
  for (int64_t i = random.Between(1, 4); i > 0; --i) {
    BreakLeader(random, random.Between(50 * kMillisecondUs, scenario.heals_us), /*peers=*/true,
                &scenario);
  }
  return scenario;
}

Scenario MakeOneLeaderScenario(uint64_t seed) {
  Scenario scenario = MakeUnbrokenScenario(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 149);
  scenario.orchestrators = static_cast<int>(random.Between(2, 3));
  const ClientPlan& met = scenario.clients[static_cast<size_t>(
      random.Between(0, static_cast<int64_t>(scenario.clients.size()) - 1))];
  BreakLeader(random, met.arrives_us + random.Between(0, 2000) * kMillisecondUs, /*peers=*/false,
              &scenario);
  for (const Fault& fault : scenario.faults) {
    scenario.heals_us = std::max(scenario.heals_us, fault.at_us + fault.lasts_us);
  }
  return scenario;
}

Scenario MakeDeafLeaderScenario(uint64_t seed) {
  Scenario scenario = MakeUnbrokenScenario(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 151);
  scenario.orchestrators = static_cast<int>(random.Between(2, 3));
  const TimeUs unit_us = scenario.time_scale * kMillisecondUs;
  const ClientPlan& met = scenario.clients[static_cast<size_t>(
      random.Between(0, static_cast<int64_t>(scenario.clients.size()) - 1))];
  const bool all = DeafensAll(seed);
  const Fault fault{.at_us = met.arrives_us + random.Between(0, 20) * unit_us,
                    .lasts_us = (all ? random.Between(250, 1500) : 6000) * unit_us};
  scenario.heals_us = std::max(scenario.heals_us, fault.at_us + fault.lasts_us);
  const bool both_ways = random.Chance(0.5);
  if (!all) Deafen(kTheLeader, both_ways, fault, &scenario);
  for (int i = 0; all && i < scenario.orchestrators; ++i) {
    Deafen(OrchestratorAt(i), both_ways, fault, &scenario);
  }
  return scenario;
}

Scenario MakeResigningScenario(uint64_t seed) {
  Scenario scenario = MakeUnbrokenScenario(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 157);
  scenario.orchestrators = static_cast<int>(random.Between(2, 3));
  LetLeadersResign(random, &scenario);
  return scenario;
}

Scenario MakeFormationsOfSeveralScenario(uint64_t seed) {
  Scenario scenario = MakeFormationScenario(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 163);
  scenario.orchestrators = static_cast<int>(random.Between(2, 3));
  if (scenario.faultless) return scenario;
  if (random.Chance(0.5)) LetLeadersResign(random, &scenario);
  for (int64_t i = random.Between(0, 2); i > 0; --i) {
    BreakLeader(random, random.Between(50 * kMillisecondUs, scenario.heals_us), /*peers=*/true,
                &scenario);
  }
  return scenario;
}

}  // namespace skein::sim
