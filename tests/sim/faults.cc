#include "tests/sim/faults.h"

#include <utility>
#include <vector>

namespace skein::sim {

using scheduler::kMillisecondUs;

void MakeLongFaults(Random& random, Scenario& scenario) {
  if (random.Chance(0.3)) scenario.loss_chance = 0.005;
  if (random.Chance(0.2)) scenario.break_chance = 0.001;
  if (random.Chance(0.3)) scenario.stall_chance = 0.02;
  constexpr FaultKind kKinds[] = {
      FaultKind::kCrash,      FaultKind::kCrash,      FaultKind::kSlow,
      FaultKind::kDrain,      FaultKind::kEngineHang, FaultKind::kEngineFailure,
      FaultKind::kStandstill, FaultKind::kStandstill, FaultKind::kOrchestratorCrash};
  const int workers = scenario.prefill_workers + scenario.decode_workers;
  for (int64_t i = random.Between(2, 12); i > 0; --i) {
    Fault fault{.kind = kKinds[random.Between(0, 8)],
                .worker = static_cast<int>(random.Between(0, workers - 1)),
                .at_us = random.Between(200 * kMillisecondUs, scenario.heals_us),
                .lasts_us = random.Between(10, 6000) * kMillisecondUs};
    if (fault.kind == FaultKind::kStandstill && random.Chance(0.3)) fault.worker = kTheOrchestrator;
    scenario.faults.push_back(fault);
  }
}

void MakeFaults(Random& random, Scenario& scenario) {
  if (random.Chance(0.4)) {
    scenario.spike_chance = 0.05;
    scenario.spike_us = random.Between(5, 150) * kMillisecondUs;
  }
  if (random.Chance(0.5)) scenario.loss_chance = random.Chance(0.5) ? 0.01 : 0.08;
  if (random.Chance(0.3)) scenario.break_chance = 0.005;
  if (random.Chance(0.3)) scenario.stall_chance = 0.02;
  const int64_t faults = random.Between(0, 4);
  for (int64_t i = 0; i < faults; ++i) {
    Fault fault;
    const int64_t kind = random.Between(0, 9);
    fault.kind = kind < 4   ? FaultKind::kCrash
                 : kind < 6 ? FaultKind::kSlow
                 : kind < 8 ? FaultKind::kDrain
                 : kind < 9 ? FaultKind::kEngineFailure
                            : FaultKind::kOrchestratorCrash;
    fault.worker =
        static_cast<int>(random.Between(0, scenario.prefill_workers + scenario.decode_workers - 1));
    fault.at_us = random.Between(50 * kMillisecondUs, scenario.heals_us);
    fault.lasts_us = random.Between(1, 600) * kMillisecondUs;
    fault.returns = random.Chance(0.8);
    scenario.faults.push_back(fault);
  }
}

void MakeDeaths(Random& random, Scenario& scenario) {
  const TimeUs every = random.Between(80, 500) * kMillisecondUs;
  for (TimeUs at = 100 * kMillisecondUs; at < scenario.heals_us; at += every) {
    const bool prefill = random.Chance(0.8);
    scenario.faults.push_back(
        {.kind = FaultKind::kCrash,
         .worker = static_cast<int>(prefill ? random.Between(0, scenario.prefill_workers - 1)
                                            : scenario.prefill_workers +
                                                  random.Between(0, scenario.decode_workers - 1)),
         .at_us = at + random.Between(0, every),
         .lasts_us = random.Between(1, 400) * kMillisecondUs});
  }
}

// Up to three leases of an instance, one of a handoff and more.
void MakeStandstills(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 19);
  if (random.Chance(0.5)) return;
  for (int64_t i = random.Between(1, 4); i > 0; --i) {
    const bool orchestrator = random.Chance(0.4);
    const int workers = scenario.prefill_workers + scenario.decode_workers;
    scenario.faults.push_back({.kind = FaultKind::kStandstill,
                               .worker = orchestrator
                                             ? kTheOrchestrator
                                             : static_cast<int>(random.Between(0, workers - 1)),
                               .at_us = random.Between(50 * kMillisecondUs, scenario.heals_us),
                               .lasts_us = random.Between(20, 900) * kMillisecondUs});
  }
}

void MakeHangs(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 31);
  if (random.Chance(0.7)) return;
  const int workers = scenario.prefill_workers + scenario.decode_workers;
  scenario.faults.push_back({.kind = FaultKind::kEngineHang,
                             .worker = static_cast<int>(random.Between(0, workers - 1)),
                             .at_us = random.Between(50 * kMillisecondUs, scenario.heals_us)});
}

void MakeMoreFaults(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 43);
  if (random.Chance(0.4)) scenario.duplicate_chance = random.Chance(0.5) ? 0.02 : 0.2;
  if (random.Chance(0.3)) {
    scenario.refusal_chance = 0.01;
    scenario.stream_refusal_chance = 0.2;
  }
  const int64_t workers = scenario.prefill_workers + scenario.decode_workers;
  for (int64_t i = random.Chance(0.4) ? random.Between(1, 3) : 0; i > 0; --i) {
    Fault fault{.kind = FaultKind::kCut,
                .worker = static_cast<int>(random.Between(kTheRouter, workers - 1)),
                .at_us = random.Between(50 * kMillisecondUs, scenario.heals_us),
                .lasts_us = random.Between(20, 900) * scenario.time_scale * kMillisecondUs,
                .to = static_cast<int>(random.Between(kTheRouter, workers - 1))};
    scenario.faults.push_back(fault);
  }
  if (random.Chance(0.15)) {
    scenario.faults.push_back({.kind = FaultKind::kRouterCrash,
                               .at_us = random.Between(50 * kMillisecondUs, scenario.heals_us),
                               .lasts_us = random.Between(1, 300) * kMillisecondUs});
  }
  if (random.Chance(0.5)) scenario.half_open_chance = 0.4;
  // Of what the orchestrator and another process send each other, in one direction.
  for (int64_t i = random.Chance(0.4) ? random.Between(1, 3) : 0; i > 0; --i) {
    Fault fault{.kind = FaultKind::kCut,
                .worker = kTheOrchestrator,
                .at_us = random.Between(50 * kMillisecondUs, scenario.heals_us),
                .lasts_us = random.Between(20, 900) * scenario.time_scale * kMillisecondUs,
                .to = static_cast<int>(random.Between(0, workers))};
    if (fault.to == workers) fault.to = kTheRouter;
    if (random.Chance(0.5)) std::swap(fault.worker, fault.to);
    scenario.faults.push_back(fault);
  }
}

// Far less than the time that requests have without asking for one.
void MakeClockJump(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 71);
  if (random.Chance(0.7)) return;
  const int64_t workers = scenario.prefill_workers + scenario.decode_workers;
  scenario.faults.push_back(
      {.kind = FaultKind::kClockJump,
       .worker = static_cast<int>(random.Between(kTheRouter, workers - 1)),
       .at_us = random.Between(50 * kMillisecondUs, scenario.heals_us),
       .lasts_us = random.Between(100, 5000) * scenario.time_scale * kMillisecondUs});
}

}  // namespace skein::sim
