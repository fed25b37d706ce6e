#include "tests/sim/formation_worlds.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/sim/answers.h"
#include "tests/sim/long_limits.h"
#include "tests/sim/scenario_parts.h"
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
  if (random.Chance(0.2)) act.order.shift = scheduler::ShiftRule{.tokens = random.Between(0, 8)};
  int size = 2;
  while (2 * size <= scenario.decode_workers && random.Chance(0.5)) size *= 2;
  if (size >= 4 && act.order.shift && act.order.shift->tokens % 2 == 0) act.order.shift->tp = 2;
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

// A request that fits a group of this size, and none of half of it.
void Lengthen(Random& random, const Scenario& scenario, int size, ClientPlan* client) {
  auto spec = std::make_shared<scheduler::RequestSpec>(*client->spec);
  const int64_t tokens =
      random.Between(TokensOfGroup(scenario, size / 2) + 1, TokensOfGroup(scenario, size));
  spec->max_tokens = random.Between(20, 60);  // at least what MakePoison may make of it
  spec->min_tokens = std::min(spec->min_tokens, spec->max_tokens);
  if (random.Chance(0.7)) spec->stop_token_ids.clear();
  while (scheduler::PromptTokens(*spec) + spec->max_tokens < tokens) {
    spec->prompt.push_back(static_cast<int32_t>(random.Between(0, kVocab - 1)));
  }
  spec->want_prompt_logprobs = false;
  client->spec = spec;
}

// Of its own randomness.
void LengthenSome(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 109);
  std::vector<int> sizes;  // that hold more than half of them do
  for (int size = 2; size <= std::min(scenario.decode_workers, 4); size *= 2) {
    if (TokensOfGroup(scenario, size) > TokensOfGroup(scenario, size / 2)) sizes.push_back(size);
  }
  const auto size = [&] { return sizes[random.Between(0, std::ssize(sizes) - 1)]; };
  for (ClientPlan& client : scenario.clients) {
    const bool may = !client.impossible && !client.unknown_model && client.spec->max_tokens > 1;
    if (may && random.Chance(0.15)) Lengthen(random, scenario, size(), &client);
  }
  if (!scenario.orders.empty() || !scenario.formations->automatic) return;
  Lengthen(random, scenario, size(), &scenario.probes.back());
}

// Others may have got another length since.
void MarkLong(Scenario& scenario) {
  const int64_t most = TokensOfGroup(scenario, 1);
  for (std::vector<ClientPlan>* clients : {&scenario.clients, &scenario.probes}) {
    for (ClientPlan& client : *clients) {
      if (client.impossible || client.unknown_model) continue;
      client.needs_group = scheduler::PromptTokens(*client.spec) + client.spec->max_tokens > most;
    }
  }
}

Scenario Make(uint64_t seed, bool long_requests) {
  Random random(seed * 0x9e3779b97f4a7c15u + 107);
  constexpr int kWorkers[] = {2, 2, 2, 3, 4, 4, 4, 5, 8, 8};
  Scenario scenario;
  scenario.seed = seed;
  scenario.faultless = seed % 4 == 0;
  MakeSpeeds(random, {.delay_most_us = 2000, .step_most_us = 3000}, scenario);
  scenario.prefill_workers = static_cast<int>(random.Between(2, 3));
  scenario.decode_workers = kWorkers[random.Between(0, 9)];
  scenario.kv_heads = 2 << random.Between(0, 2);
  scenario.decode_blocks = static_cast<int>(random.Between(38, 50));
  scenario.router_streams = 40;
  scenario.formations = MakePlan(random);
  MakeFormationWorkload(random, scenario);
  MakeOrders(random, scenario);
  if (long_requests) LengthenSome(seed, scenario);
  MakeAnswers(seed, scenario);
  if (long_requests) MarkLong(scenario);
  if (seed / 4 % 4 == 3) MakeStaging(random, scenario);
  if (scenario.faultless) return scenario;
  if (random.Chance(0.3)) scenario.group_break_chance = 0.003;
  if (random.Chance(0.3)) scenario.formations->feed_failure_chance = 0.1;
  if (random.Chance(0.4)) {
    scenario.formations->feed_spike_chance = 0.02;
    scenario.spike_us = random.Between(5, 150) * kMillisecondUs;
  }
  if (random.Chance(0.7)) MakeFaultsOfRanks(random, scenario);
  if (random.Chance(0.4)) return scenario;  // nothing else breaks
  MakeAllFaults(seed, random, scenario);
  return scenario;
}

}  // namespace

Scenario MakeFormationScenario(uint64_t seed) { return Make(seed, /*long_requests=*/false); }

Scenario MakeLongRequestsScenario(uint64_t seed) {
  Scenario scenario = Make(seed, /*long_requests=*/true);
  // Above twice FormationConfig::long_wait_us: what was lost waits for a group once more.
  scenario.request_deadline_ms = 28'000;
  scenario.prefill_blocks = 60;  // for each prompt that fits a decode worker alone
  return scenario;
}

}  // namespace skein::sim
