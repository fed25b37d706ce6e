#include "tests/sim/dense_worlds.h"

#include <iterator>

#include "tests/sim/scenario_parts.h"
#include "tests/sim/virtual_time.h"
#include "tests/sim/workload.h"

namespace skein::sim {
namespace {

using scheduler::kMillisecondUs;

constexpr FaultKind kKinds[] = {
    FaultKind::kCrash,      FaultKind::kCrash,         FaultKind::kSlow,
    FaultKind::kDrain,      FaultKind::kEngineFailure, FaultKind::kEngineHang,
    FaultKind::kStandstill, FaultKind::kStandstill,    FaultKind::kOrderedDrain,
    FaultKind::kOtherBuild, FaultKind::kCut,           FaultKind::kCut,
    FaultKind::kUnread,     FaultKind::kClockJump};

Fault MakeFault(Random& random, const Scenario& scenario, TimeUs at_us) {
  constexpr auto kLast = static_cast<int64_t>(std::size(kKinds)) - 1;
  const int64_t workers = scenario.prefill_workers + scenario.decode_workers;
  Fault fault{.kind = kKinds[random.Between(0, kLast)],
              .worker = static_cast<int>(random.Between(0, workers - 1)),
              .at_us = at_us,
              .lasts_us = random.Between(1, 60) * kMillisecondUs};
  if (random.Chance(0.03)) fault.kind = FaultKind::kOrchestratorCrash;
  if (fault.kind == FaultKind::kOtherBuild && fault.worker < scenario.prefill_workers) {
    fault.worker = scenario.prefill_workers;
  }
  if (fault.kind == FaultKind::kUnread) fault.worker = kTheRouter;
  if (fault.kind == FaultKind::kCut) {
    fault.to = static_cast<int>(random.Between(kTheRouter, workers - 1));
    if (fault.to == fault.worker) fault.to = kTheOrchestrator;
  }
  return fault;
}

}  // namespace

Scenario MakeDenseScenario(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 149);
  Scenario scenario;
  scenario.seed = seed;
  MakeSpeeds(random, {.step_most_us = 1500}, scenario);
  scenario.prefill_workers = static_cast<int>(random.Between(3, 4));
  scenario.decode_workers = static_cast<int>(random.Between(3, 4));
  scenario.router_streams = 40;
  scenario.router_queue = 20;
  MakeShortWorkload(random, scenario);
  MakeAnswers(seed, scenario);
  if (random.Chance(0.5)) MakeStaging(random, scenario);
  if (random.Chance(0.3)) scenario.loss_chance = 0.01;
  if (random.Chance(0.3)) scenario.break_chance = 0.002;
  if (random.Chance(0.3)) scenario.stall_chance = 0.02;
  if (random.Chance(0.4)) scenario.duplicate_chance = 0.02;
  if (random.Chance(0.5)) scenario.half_open_chance = 0.4;
  const int64_t every_us = random.Between(5, 30) * kMillisecondUs;
  for (TimeUs at = 100 * kMillisecondUs; at < scenario.heals_us;
       at += random.Between(1, 2 * every_us)) {
    scenario.faults.push_back(MakeFault(random, scenario, at));
  }
  return scenario;
}

}  // namespace skein::sim
