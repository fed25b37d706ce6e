#include "tests/sim/variations.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/sim/virtual_time.h"

namespace skein::sim {

using scheduler::kMillisecondUs;

void GiveRoom(Scenario* scenario) {
  std::erase_if(scenario->clients, [](const ClientPlan& client) {
    return client.impossible || client.unknown_model || client.poison != absl::StatusCode::kOk;
  });
  for (ClientPlan& client : scenario->clients) {
    auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
    spec->deadline_us = 0;
    client.spec = spec;
    client.leaves_us = scheduler::kNever;
  }
  const Scenario defaults;
  ++scenario->prefill_workers;
  scenario->prefill_blocks = 60;
  scenario->router_streams = 100;
  scenario->prefill_requests = scenario->decode_requests = 100;
  scenario->attach_lease_ms = scenario->writing_lease_ms = 500;
  scenario->instance_lease_ms = defaults.instance_lease_ms;
  scenario->faultless = false;
  scenario->no_excuse = true;
  const auto needs_group = [](const ClientPlan& client) { return client.needs_group; };
  if (std::none_of(scenario->clients.begin(), scenario->clients.end(), needs_group) &&
      std::none_of(scenario->probes.begin(), scenario->probes.end(), needs_group)) {
    scenario->decode_blocks = 400;
    return;
  }
  scenario->formations->automatic = true;  // and nobody pins
  scenario->orders.clear();
}

void LeaveNoExcuse(Scenario* scenario) {
  GiveRoom(scenario);
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 59);
  constexpr FaultKind kKinds[] = {FaultKind::kCrash,
                                  FaultKind::kCrash,
                                  FaultKind::kSlow,
                                  FaultKind::kDrain,
                                  FaultKind::kEngineHang,
                                  FaultKind::kEngineFailure,
                                  FaultKind::kStandstill,
                                  FaultKind::kOrchestratorCrash,
                                  FaultKind::kOrchestratorCrash};
  Fault fault{.kind = kKinds[random.Between(0, 8)],
              .worker = static_cast<int>(random.Between(0, scenario->prefill_workers - 1)),
              .at_us = random.Between(100 * kMillisecondUs, scenario->heals_us),
              .lasts_us = random.Between(20, 600) * kMillisecondUs};
  if (fault.kind == FaultKind::kStandstill && random.Chance(0.7)) fault.worker = kTheOrchestrator;
  scenario->faults = {fault};
  scenario->loses_generation = random.Chance(0.5);
}

void BreakLinks(Scenario* scenario) {
  GiveRoom(scenario);
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 67);
  scenario->link_break_chance = static_cast<double>(random.Between(2, 20)) * 1e-3;
  scenario->loses_generation = random.Chance(0.5);
  scenario->stream_refusal_chance = 0.1;
  for (TimeUs at = 0; (at += random.Between(50, 400) * kMillisecondUs) < scenario->heals_us;) {
    scenario->faults.push_back({.kind = FaultKind::kOrchestratorCrash,
                                .at_us = at,
                                .lasts_us = random.Between(1, 10) * kMillisecondUs});
  }
}

void CutDecodeFromOrchestrator(Scenario* scenario) {
  GiveRoom(scenario);
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 79);
  const TimeUs lease_us = scenario->instance_lease_ms * scenario->time_scale * kMillisecondUs;
  scenario->heals_us = std::max(scenario->heals_us, 12 * lease_us);
  int64_t decode = random.Between(0, scenario->decode_workers - 1);
  for (TimeUs at = random.Between(50, 200) * kMillisecondUs; at < scenario->heals_us;) {
    const TimeUs lasts_us = random.Between(lease_us / 2, 3 * lease_us);
    const int worker = scenario->prefill_workers + static_cast<int>(decode);
    Fault cut{.kind = FaultKind::kCut, .worker = worker, .at_us = at, .lasts_us = lasts_us};
    cut.to = kTheOrchestrator;
    scenario->faults.push_back(cut);
    std::swap(cut.worker, cut.to);
    scenario->faults.push_back(cut);
    // The other one takes what is new meanwhile: it must be back before.
    at += lasts_us + lease_us;
    decode = (decode + 1) % scenario->decode_workers;
  }
}

void RestartDecode(Scenario* scenario) {
  GiveRoom(scenario);
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 101);
  scenario->decode_workers = std::max(scenario->decode_workers, 2);
  // Those that stay must have room in their steps, too, or answers outlast the requests' deadline.
  scenario->decode_batch = scenario->decode_requests;
  int64_t decode = random.Between(0, scenario->decode_workers - 1);
  for (TimeUs at = random.Between(300, 900) * kMillisecondUs; at < scenario->heals_us;) {
    const TimeUs grace_us = random.Between(800, 3000) * kMillisecondUs;
    scenario->faults.push_back({.kind = FaultKind::kDrain,
                                .worker = scenario->prefill_workers + static_cast<int>(decode),
                                .at_us = at,
                                .lasts_us = grace_us});
    at += grace_us + random.Between(500, 1500) * kMillisecondUs;
    decode = (decode + 1) % scenario->decode_workers;
  }
}

void HalfOpenStreams(Scenario* scenario) {
  GiveRoom(scenario);
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 83);
  scenario->half_open_chance = 0.5;
  if (random.Chance(0.5)) {
    scenario->link_break_chance = static_cast<double>(random.Between(2, 20)) * 1e-3;
    return;
  }
  const TimeUs lease_us = scenario->instance_lease_ms * scenario->time_scale * kMillisecondUs;
  const int workers = scenario->prefill_workers + scenario->decode_workers;
  for (TimeUs at = random.Between(50, 300) * kMillisecondUs; at < scenario->heals_us;) {
    Fault cut{.kind = FaultKind::kCut, .worker = kTheOrchestrator, .at_us = at};
    cut.lasts_us = random.Between(lease_us / 15, 2 * lease_us);
    cut.to = static_cast<int>(random.Between(0, workers));
    if (cut.to == workers) cut.to = kTheRouter;
    if (random.Chance(0.5)) std::swap(cut.worker, cut.to);
    scenario->faults.push_back(cut);
    at += cut.lasts_us + lease_us;  // those that are lost must be back before the next go
  }
}

void SlowTokens(Scenario* scenario) {
  LeaveNoExcuse(scenario);
  scenario->token_spike_chance = 0.2;
  scenario->spike_us = 300 * kMillisecondUs;
}

void LetAnotherBuildCome(Scenario* scenario) {
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 89);
  scenario->faultless = false;
  int64_t worker = random.Between(0, scenario->decode_workers - 1);
  for (TimeUs at = 100 * kMillisecondUs; at < scenario->heals_us;
       worker = (worker + 1) % scenario->decode_workers) {
    const TimeUs lasts_us = random.Between(50, 400) * kMillisecondUs;
    scenario->faults.push_back({.kind = FaultKind::kOtherBuild,
                                .worker = scenario->prefill_workers + static_cast<int>(worker),
                                .at_us = at,
                                .lasts_us = lasts_us});
    at += lasts_us + random.Between(50, 200) * kMillisecondUs;
  }
}

void JumpClocks(Scenario* scenario) {
  GiveRoom(scenario);
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 73);
  scenario->faults.push_back({.kind = FaultKind::kClockJump,
                              .worker = kTheOrchestrator,
                              .at_us = random.Between(100 * kMillisecondUs, scenario->heals_us),
                              .lasts_us = random.Between(1, 5) * scheduler::kSecondUs});
}

void ShareDenseParts(int tp, Scenario* scenario) {
  auto planning = std::make_shared<scheduler::PlanningConfig>(*scenario->planning);
  planning->latency = planning->latency.Within({.pinned_tp = tp});
  scenario->planning = std::move(planning);
  scenario->prefill_nodes = 1;
}

void LimitRequests(Scenario* scenario) {
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 37);
  scenario->prefill_requests = random.Between(1, 2);
  scenario->decode_requests = random.Between(1, 3);
  if (scenario->formations.has_value()) {  // more instances, and quiet spells
    scenario->prefill_requests = 1;
    scenario->decode_requests = 1;
  }
  scenario->router_streams = 100;
}

void LetClientsFailEngines(int64_t clients, Scenario* scenario) {
  for (ClientPlan& client : scenario->clients) {
    auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
    if (client.impossible || client.unknown_model) continue;
    if (client.poison != absl::StatusCode::kOk) continue;
    client.leaves_us = scheduler::kNever;
    spec->deadline_us = 0;
    if (clients-- > 0) spec->names = {kFailsEngines};
    client.spec = spec;
  }
}

void ShareWeights(Scenario* scenario) {
  using Act = scheduler::orchestrator::FormationOrder::Act;
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 29);
  scenario->formations->shares = true;
  scenario->formations->offline_lines = random.Between(0, 40);
  for (FormationAct& act : scenario->orders) {
    if (act.order.act != Act::kBind || random.Chance(0.5)) continue;
    act.order.act = Act::kShare;
    act.order.shift.reset();
    const int64_t mode = random.Between(0, 2);
    if (mode < 2) act.order.shared = static_cast<scheduler::SharedMode>(mode);
  }
  scenario->formations->extra_blocks = static_cast<int>(random.Between(0, 20));
}

void OrderDrains(Scenario* scenario) {
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 23);
  const int workers = scenario->prefill_workers + scenario->decode_workers;
  TimeUs at = 50 * kMillisecondUs;
  while (at < scenario->heals_us) {
    const TimeUs lasts = random.Between(20, 400) * kMillisecondUs;
    scenario->faults.push_back({.kind = FaultKind::kOrderedDrain,
                                .worker = static_cast<int>(random.Between(0, workers - 1)),
                                .at_us = at,
                                .lasts_us = lasts});
    at += lasts + random.Between(0, 100) * kMillisecondUs;
  }
  scenario->faults.push_back({.kind = FaultKind::kOrderedDrain,
                              .worker = kTheRouter,
                              .at_us = random.Between(100 * kMillisecondUs, scenario->heals_us / 2),
                              .lasts_us = random.Between(20, 300) * kMillisecondUs});
}

}  // namespace skein::sim
