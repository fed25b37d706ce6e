#include "tests/sim/scenario.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/plan/policy.h"
#include "tests/sim/faults.h"
#include "tests/sim/scenario_parts.h"
#include "tests/sim/workload.h"

namespace skein::sim {
namespace {

using scheduler::kMillisecondUs;

double RealBetween(Random& random, double low, double high) {
  return low + (high - low) * static_cast<double>(random.Between(0, 1000)) * 1e-3;
}

// Of its own randomness.
void MakeNodes(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 73);
  if (random.Chance(0.5)) scenario.prefill_nodes = 2;
}

// Of its own randomness: in most worlds some of the SP sizes also have shapes with tp > 1, which
// are faster or slower than without.
std::vector<scheduler::TensorShape> MakeTensorShapes(
    uint64_t seed, const std::map<int, scheduler::SpCoefficients>& sizes) {
  Random random(seed * 0x9e3779b97f4a7c15u + 71);
  std::vector<scheduler::TensorShape> shapes;
  if (random.Chance(0.25)) return shapes;
  for (const auto& [ranks, coefficients] : sizes) {
    for (int tp = 2; tp <= ranks; tp *= 2) {
      if (random.Chance(0.3)) continue;
      scheduler::SpCoefficients with = coefficients;
      with.a_s *= RealBetween(random, 0.3, 1.5);
      with.b_s_per_token *= RealBetween(random, 0.6, 1.4);
      shapes.push_back({.ranks = ranks, .tp = tp, .coefficients = with});
    }
  }
  return shapes;
}

// Equation 1 with what more instances bring drawn at random, now and then nothing.
scheduler::LatencyModel MakeLatency(uint64_t seed, Random& random, int instances) {
  const auto real = [&random](double low, double high) { return RealBetween(random, low, high); };
  const double token_s = real(5e-5, 6e-4);
  const double attention_s = token_s * real(0, 0.03);
  std::map<int, scheduler::SpCoefficients> sizes;
  double share = 1;
  for (int sp = 1; sp <= instances; sp *= 2) {
    sizes[sp] = {.a_s = real(0, 1e-3) * sp,
                 .b_s_per_token = token_s * share,
                 .c_s_per_token2 = attention_s * share,
                 .d_s_per_token2 = attention_s * share * 0.5};
    share *= real(0.45, 0.9);
  }
  return *scheduler::LatencyModel::Make(sizes, MakeTensorShapes(seed, sizes));
}

std::shared_ptr<const scheduler::PlanningConfig> MakePlanning(uint64_t seed, Random& random,
                                                              int instances) {
  constexpr const char* kPolicies[] = {"random", "random",  "random", "tetris",
                                       "single", "rolling", "greedy", "fixed2"};
  const auto policy = scheduler::Policy::Parse(kPolicies[random.Between(0, 7)]);
  auto planning = std::make_shared<scheduler::PlanningConfig>(scheduler::PlanningConfig{
      .latency = MakeLatency(seed, random, instances), .policy = *policy});
  planning->tables.improvement_rates =
      scheduler::ImprovementRateTable::Constant(static_cast<double>(random.Between(0, 30)) * 0.01);
  planning->node_size = static_cast<int>(random.Between(1, 8));
  return planning;
}

// Of its own randomness: half of the seeds have limits and leases of their own.
void MakeLimits(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 47);
  if (random.Chance(0.5)) return;
  scenario.router_streams = random.Between(6, 40);
  scenario.router_queue = random.Between(4, 16);
  scenario.prefill_requests = random.Between(4, 16);
  scenario.decode_requests = random.Between(3, 12);
  scenario.open_ahead = random.Between(1, 5);
  scenario.slice_tokens = random.Between(4, 16);
  scenario.decode_batch = random.Between(1, 8);
  scenario.instance_lease_ms = random.Between(250, 900);
  scenario.writing_lease_ms = random.Between(150, 500);
  scenario.attach_lease_ms = random.Between(300, 600);
}

// Of its own randomness: what else a seed decides is the same in both modes.
void MakeStaging(uint64_t seed, Scenario& scenario) {
  Random random(seed * 0x9e3779b97f4a7c15u + 13);
  MakeStaging(random, scenario);
}

}  // namespace

int NumberOfWorker(const std::string& endpoint) {
  return std::stoi(endpoint.substr(endpoint.find_first_of("0123456789")));
}

std::string NodeOfPrefill(const Scenario& scenario, int worker) {
  return scenario.prefill_nodes == 1 ? "h" : absl::StrCat("h", worker % scenario.prefill_nodes);
}

Scenario MakeSpScenario(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 7);
  Scenario scenario;
  scenario.seed = seed;
  scenario.faultless = seed % 4 == 0;
  MakeSpeeds(random, {}, scenario);
  scenario.prefill_workers = static_cast<int>(random.Between(3, 6));
  scenario.prefill_blocks = static_cast<int>(random.Between(16, 28));
  scenario.router_streams = 40;
  scenario.planning = MakePlanning(seed, random, scenario.prefill_workers);
  MakeSpWorkload(random, scenario);
  MakeAnswers(seed, scenario);
  MakeLimits(seed, scenario);
  MakeNodes(seed, scenario);
  if (seed / 4 % 2 == 1) MakeStaging(seed, scenario);
  if (scenario.faultless) return scenario;
  MakeAllFaults(seed, random, scenario);
  scenario.word_loss_chance = 0.25;
  if (random.Chance(0.6)) MakeDeaths(random, scenario);
  if (random.Chance(0.4)) scenario.group_break_chance = 0.02;
  return scenario;
}

Scenario MakeScenario(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 1);
  Scenario scenario;
  scenario.seed = seed;
  scenario.faultless = seed % 5 == 0;
  MakeSpeeds(random, {.step_most_us = 3000}, scenario);
  MakeWorkload(random, scenario);
  MakeAnswers(seed, scenario);
  MakeLimits(seed, scenario);
  if (seed / 5 % 2 == 1) MakeStaging(seed, scenario);
  if (scenario.faultless) return scenario;
  MakeAllFaults(seed, random, scenario);
  return scenario;
}

Scenario MakeLongScenario(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 53);
  Scenario scenario;
  scenario.seed = seed;
  scenario.faultless = seed % 8 == 0;
  scenario.time_scale = 10;
  MakeSpeeds(random, {.step_least_us = 30 * kMillisecondUs, .step_most_us = 120 * kMillisecondUs},
             scenario);
  scenario.slowness = random.Between(2, 4);
  scenario.decode_blocks = 200;
  MakeLongWorkload(random, scenario);
  MakeAnswers(seed, scenario);
  MakeLimits(seed, scenario);
  if (seed / 8 % 2 == 1) MakeStaging(seed, scenario);
  if (scenario.faultless) return scenario;
  MakeLongFaults(random, scenario);
  MakeMoreFaults(seed, scenario);
  MakeClockJump(seed, scenario);
  return scenario;
}

Scenario MakeSlowWritersScenario(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 61);
  Scenario scenario;
  scenario.seed = seed;
  MakeSpeeds(random, {.delay_most_us = 1000, .step_most_us = 1000}, scenario);
  scenario.stall_chance = 0.3;
  scenario.router_streams = 40;
  scenario.router_queue = 40;
  MakeSpWorkload(random, scenario);
  MakeSamplings(seed, scenario);
  for (ClientPlan& client : scenario.clients) {
    if (random.Chance(0.4)) {
      client.leaves_us = client.arrives_us + random.Between(5, 100) * kMillisecondUs;
    }
  }
  for (int64_t i = random.Between(1, 3); i > 0; --i) {
    scenario.faults.push_back(
        {.kind = FaultKind::kStandstill,
         .worker = static_cast<int>(random.Between(0, scenario.prefill_workers - 1)),
         .at_us = random.Between(100 * kMillisecondUs, scenario.heals_us),
         .lasts_us = random.Between(250, 900) * kMillisecondUs});
  }
  return scenario;
}

}  // namespace skein::sim
