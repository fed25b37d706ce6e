#include "tests/sim/small_pools.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "scheduler/base/request.h"
#include "scheduler/plan/policy.h"
#include "tests/sim/answers.h"

namespace skein::sim {

using scheduler::kMillisecondUs;

namespace {

int64_t BlocksOf(const scheduler::RequestSpec& spec) {
  const int64_t block_tokens =
      EngineOptions(scheduler::Role::kDecode, /*kv_heads=*/1).kv.block_tokens;
  return (scheduler::PromptTokens(spec) + spec.max_tokens + block_tokens - 1) / block_tokens;
}

// Workers slow down and the orchestrator dies, again and again.
void MakeRestarts(Random& random, Scenario* scenario) {
  for (TimeUs at = 100 * kMillisecondUs; at < scenario->heals_us;) {
    scenario->faults.push_back(
        {.kind = FaultKind::kSlow,
         .worker = static_cast<int>(random.Between(0, scenario->prefill_workers - 1)),
         .at_us = at,
         .lasts_us = random.Between(1, 30) * kMillisecondUs});
    at += random.Between(20, 40) * kMillisecondUs;
  }
  for (int i = 0; i < 20; ++i) {
    scenario->faults.push_back({.kind = FaultKind::kOrchestratorCrash,
                                .at_us = random.Between(100 * kMillisecondUs, scenario->heals_us),
                                .lasts_us = 5 * kMillisecondUs});
  }
}

}  // namespace

void ShrinkPools(Scenario* scenario) {
  Random random(scenario->seed * 0x9e3779b97f4a7c15u + 79);
  int64_t largest = 0;
  for (std::vector<ClientPlan>* clients : {&scenario->clients, &scenario->probes}) {
    for (ClientPlan& client : *clients) {
      if (client.impossible || client.unknown_model) continue;
      auto spec = std::make_shared<scheduler::RequestSpec>(*client.spec);
      // What fails a sequence alone depends on these.
      if (client.poison == absl::StatusCode::kOk) {
        if (spec->max_tokens > 1) spec->max_tokens = random.Between(10, 80);
        spec->min_tokens = std::min(spec->min_tokens, spec->max_tokens);
        if (random.Chance(0.7)) spec->stop_token_ids.clear();
      }
      if (random.Chance(0.2)) spec->priority = static_cast<int32_t>(random.Between(-1, 2));
      largest = std::max(largest, BlocksOf(*spec));
      client.spec = spec;
    }
  }
  scenario->decode_blocks = static_cast<int>(largest + random.Between(0, 8));
}

Scenario MakeNoRoomScenario(uint64_t seed) {
  constexpr uint64_t kFaultlessEvery = 4;  // of MakeSpScenario
  Scenario scenario = MakeSpScenario(kFaultlessEvery * seed);
  ShrinkPools(&scenario);
  Random random(scenario.seed * 0x9e3779b97f4a7c15u + 97);
  scenario.faultless = false;
  auto planning = std::make_shared<scheduler::PlanningConfig>(*scenario.planning);
  planning->policy = *scheduler::Policy::Parse("random");
  scenario.planning = std::move(planning);
  scenario.prefill_blocks = static_cast<int>(random.Between(16, 20));
  constexpr int kFewest = 2, kMost = 2;  // drawn, so that failed_seeds.txt keeps its world
  scenario.prefill_workers = static_cast<int>(random.Between(kFewest, kMost));
  scenario.open_ahead = random.Between(1, 5);
  scenario.place_decode_wait_ms = random.Between(1, 20);
  scenario.decode_requests = random.Between(1, 3);
  scenario.instance_lease_ms = 250;
  scenario.slowness = 400;
  scenario.stall_chance = 0.5;
  scenario.group_break_chance = 0.05;
  scenario.word_loss_chance = 0.5;
  MakeRestarts(random, &scenario);
  return scenario;
}

}  // namespace skein::sim
