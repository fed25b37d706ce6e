#include "tests/sim/gray_worlds.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "tests/sim/single_faults.h"
#include "tests/sim/virtual_time.h"

namespace skein::sim {

using scheduler::kMillisecondUs;

namespace {

constexpr uint64_t kMoreClients = 2;  // times those of an unbroken world

// So that most instances have something to do, and a slow one has peers to be compared with.
void AddClientsOf(const Scenario& other, uint64_t serials, Scenario* scenario) {
  for (ClientPlan client : other.clients) {
    if (client.arrives_us >= scenario->heals_us) continue;
    auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
    spec->id.serial += serials;
    if (spec->prompt_of.has_value()) spec->prompt_of->serial += serials;
    client.spec = std::move(spec);
    scenario->clients.push_back(std::move(client));
  }
}

}  // namespace

Scenario MakeGrayScenario(uint64_t seed) {
  Scenario scenario = MakeUnbrokenScenario(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 131);
  for (uint64_t i = 1; i <= kMoreClients; ++i) {
    AddClientsOf(MakeUnbrokenScenario(1'000'000 * i + seed), 10'000 * i, &scenario);
  }
  scenario.prefill_workers = 4;
  scenario.decode_workers = static_cast<int>(random.Between(4, 5));
  scenario.slowness = random.Between(4, 20);
  const int workers = scenario.prefill_workers + scenario.decode_workers;
  const bool of_decode = random.Chance(0.7);
  int64_t worker = of_decode ? random.Between(scenario.prefill_workers, workers - 1)
                             : random.Between(0, scenario.prefill_workers - 1);
  TimeUs at = random.Between(2000, 5000) * kMillisecondUs;
  if (random.Chance(0.5)) {
    scenario.faults.push_back({.kind = FaultKind::kEngineHang,
                               .worker = static_cast<int>((worker + 1) % workers),
                               .at_us = at + random.Between(0, 8000) * kMillisecondUs});
  }
  while (at < scenario.heals_us) {
    const TimeUs lasts_us = random.Between(4000, 20'000) * kMillisecondUs;
    scenario.faults.push_back({.kind = FaultKind::kGray,
                               .worker = static_cast<int>(worker),
                               .at_us = at,
                               .lasts_us = lasts_us});
    at += lasts_us + random.Between(1000, 4000) * kMillisecondUs;
    worker = (worker + 2) % workers;
  }
  return scenario;
}

Scenario MakeUnreadScenario(uint64_t seed) {
  Scenario scenario = MakeUnbrokenScenario(seed);
  Random random(seed * 0x9e3779b97f4a7c15u + 137);
  for (TimeUs at = random.Between(300, 1500) * kMillisecondUs; at < scenario.heals_us;) {
    const TimeUs lasts_us = random.Between(100, 2000) * kMillisecondUs;
    scenario.faults.push_back(
        {.kind = FaultKind::kUnread, .worker = kTheRouter, .at_us = at, .lasts_us = lasts_us});
    at += lasts_us + random.Between(100, 2000) * kMillisecondUs;
  }
  if (random.Chance(0.5)) return scenario;
  Fault fault{.kind = random.Chance(0.5) ? FaultKind::kCrash : FaultKind::kDrain,
              .worker = scenario.prefill_workers +
                        static_cast<int>(random.Between(0, scenario.decode_workers - 1)),
              .at_us = random.Between(2000, 15'000) * kMillisecondUs,
              .lasts_us = random.Between(500, 3000) * kMillisecondUs};
  scenario.faults.push_back(fault);
  return scenario;
}

void JudgeBySeed(const Scenario& scenario, scheduler::OrchestratorConfig* config) {
  const bool gray = std::any_of(scenario.faults.begin(), scenario.faults.end(),
                                [](const Fault& f) { return f.kind == FaultKind::kGray; });
  if (!gray) return;
  Random random(scenario.seed * 0x9e3779b97f4a7c15u + 139);
  const auto tenths = [&random](int64_t low, int64_t high) {
    return static_cast<double>(random.Between(low, high)) * 0.1;
  };
  scheduler::PaceConfig& pace = config->pace;
  pace.slow_factor = tenths(13, 25);
  pace.suspect_factor = pace.slow_factor + tenths(0, 12);
  pace.step_min_us = random.Between(2, 20) * kMillisecondUs;
  pace.evidence_us = random.Between(500, 1500) * kMillisecondUs;
  pace.evidence_steps = random.Between(2, 5);
  pace.share_max = tenths(2, 5);
  pace.aside_after_us = random.Between(300, 2000) * kMillisecondUs;
  pace.pause_us = random.Between(500, 4000) * kMillisecondUs;
  pace.pause_longest_us = 4 * pace.pause_us;
  pace.forget_us = random.Between(1000, 10'000) * kMillisecondUs;
  // A step is suspect after 2 s, and the workers of these worlds give up after 3 s.
  config->hung_step_us = random.Between(2050, 2400) * kMillisecondUs;
}

}  // namespace skein::sim
