#include "tests/sim/formation_worlds.h"

#include <algorithm>
#include <utility>

#include "tests/sim/faults.h"
#include "tests/sim/workload.h"

namespace skein::sim {
namespace {

using scheduler::kMillisecondUs;
using scheduler::OwnSequences;
using scheduler::orchestrator::FormationOrder;

FormationPlan MakePlan(Random& random) {
  FormationPlan plan;
  plan.automatic = random.Chance(0.6);
  plan.bind_sequences = static_cast<double>(random.Between(1, 8)) * 0.5;
  plan.release_sequences = plan.bind_sequences + static_cast<double>(random.Between(1, 4)) * 0.5;
  plan.dwell_ms = random.Between(50, 800);
  plan.shift_tokens = random.Between(0, 4);
  plan.own_share = random.Chance(0.5) ? 0 : static_cast<double>(random.Between(1, 9)) * 0.1;
  return plan;
}

FormationAct MakeAct(Random& random, const Scenario& scenario) {
  FormationAct act;
  const int64_t what = random.Between(0, 9);
  act.order.act = what < 6   ? FormationOrder::Act::kBind
                  : what < 8 ? FormationOrder::Act::kRelease
                  : what < 9 ? FormationOrder::Act::kPin
                             : FormationOrder::Act::kUnpin;
  if (random.Chance(0.3)) act.order.how = scheduler::Switch::kHard;
  if (random.Chance(0.4)) act.order.own = static_cast<OwnSequences>(random.Between(0, 3));
  if (random.Chance(0.2)) act.order.shift_tokens = random.Between(0, 8);
  int size = 2;
  while (2 * size <= scenario.decode_workers && random.Chance(0.5)) size *= 2;
  if (random.Chance(0.3)) {  // of the whole group
    act.order.size = random.Chance(0.5) ? 0 : size;
    return act;
  }
  act.size = size;
  act.first = static_cast<int>(random.Between(0, scenario.decode_workers / size - 1)) * size;
  if (random.Chance(0.05)) act.first += 1;  // what cannot be bound
  return act;
}

void MakeOrders(Random& random, Scenario& scenario) {
  if (scenario.formations->automatic && random.Chance(0.4)) return;
  TimeUs at = random.Between(600, 900) * kMillisecondUs;  // from when on the groups are made
  while (at < scenario.heals_us) {
    FormationAct act = MakeAct(random, scenario);
    act.at_us = at;
    if (scenario.orders.empty()) act.order.act = FormationOrder::Act::kBind;
    scenario.orders.push_back(std::move(act));
    at += random.Between(20, 400) * kMillisecondUs;
  }
}

// Of decode workers.
void MakeFaultsOfRanks(Random& random, Scenario& scenario) {
  const auto rank = [&] {
    return scenario.prefill_workers +
           static_cast<int>(random.Between(0, scenario.decode_workers - 1));
  };
  constexpr FaultKind kKinds[] = {
      FaultKind::kCrash,      FaultKind::kCrash,        FaultKind::kStandstill,
      FaultKind::kDrain,      FaultKind::kSlow,         FaultKind::kEngineFailure,
      FaultKind::kEngineHang, FaultKind::kOrderedDrain, FaultKind::kOrchestratorCrash};
  const TimeUs every = random.Between(300, 1500) * kMillisecondUs;
  for (TimeUs at = 600 * kMillisecondUs; at < scenario.heals_us; at += every) {
    const TimeUs when = std::min(at + random.Between(0, every), scenario.heals_us);
    scenario.faults.push_back({.kind = kKinds[random.Between(0, 8)],
                               .worker = rank(),
                               .at_us = when,
                               .lasts_us = random.Between(1, 500) * kMillisecondUs});
    if (random.Chance(0.8)) continue;
    const int other = rank();
    scenario.faults.push_back({.kind = FaultKind::kCut,
                               .worker = rank(),
                               .at_us = when,
                               .lasts_us = random.Between(1, 500) * kMillisecondUs,
                               .to = other});
  }
}

}  // namespace

Scenario MakeFormationScenario(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 107);
  constexpr int kWorkers[] = {2, 2, 2, 3, 4, 4, 4, 5, 8, 8};
  Scenario scenario;
  scenario.seed = seed;
  scenario.faultless = seed % 4 == 0;
  scenario.delay_max_us = random.Between(60, 2000);
  scenario.compute_at_end = random.Chance(0.5);
  scenario.step_us = random.Between(200, 3000);
  scenario.prefill_workers = static_cast<int>(random.Between(2, 3));
  scenario.decode_workers = kWorkers[random.Between(0, 9)];
  scenario.kv_heads = 2 << random.Between(0, 2);
  scenario.decode_blocks = static_cast<int>(random.Between(38, 50));
  scenario.router_streams = 40;
  scenario.formations = MakePlan(random);
  MakeFormationWorkload(random, scenario);
  MakeOrders(random, scenario);
  MakeSamplings(seed, scenario);
  MakePoison(seed, scenario);
  if (seed / 4 % 4 == 3) {
    scenario.staging_buffers = static_cast<int>(random.Between(1, 3));
    scenario.staging_slots = static_cast<int32_t>(random.Between(1, 8));
  }
  if (scenario.faultless) return scenario;
  if (random.Chance(0.3)) scenario.group_break_chance = 0.003;
  if (random.Chance(0.3)) scenario.formations->feed_failure_chance = 0.1;
  if (random.Chance(0.4)) {
    scenario.formations->feed_spike_chance = 0.02;
    scenario.spike_us = random.Between(5, 150) * kMillisecondUs;
  }
  if (random.Chance(0.7)) MakeFaultsOfRanks(random, scenario);
  if (random.Chance(0.4)) return scenario;  // nothing else breaks
  MakeFaults(random, scenario);
  MakeStandstills(seed, scenario);
  MakeHangs(seed, scenario);
  MakeMoreFaults(seed, scenario);
  MakeClockJump(seed, scenario);
  return scenario;
}

}  // namespace skein::sim
