#include "tests/sim/pointed_worlds.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sim/scenario_parts.h"
#include "tests/sim/workload.h"

namespace skein::sim {
namespace {

using scheduler::kMillisecondUs;
using scheduler::OwnSequences;
using scheduler::orchestrator::FormationOrder;
using services::testing::FaultPoint;

constexpr int kWorkers = 8;

// Orders that only the lead gets.
bool OnlyTheLead(FaultPoint point) {
  return point == FaultPoint::kCommitOrdered || point == FaultPoint::kReleaseOrdered;
}

std::vector<PointedCase> AllCases() {
  std::vector<PointedCase> cases;
  for (int i = 1; i <= static_cast<int>(FaultPoint::kEnded); ++i) {
    const auto point = static_cast<FaultPoint>(i);
    for (const bool kills : {true, false}) {
      cases.push_back({.point = point, .kills = kills, .lead = true});
      if (!OnlyTheLead(point)) cases.push_back({.point = point, .kills = kills, .lead = false});
    }
  }
  return cases;
}

FormationAct Bind(Random& random, TimeUs at_us) {
  FormationAct act{.at_us = at_us};
  act.order.act = FormationOrder::Act::kBind;
  act.order.own = static_cast<OwnSequences>(random.Between(0, 3));
  if (random.Chance(0.5)) act.order.shift = scheduler::ShiftRule{.tokens = random.Between(0, 8)};
  act.size = random.Chance(0.6) ? kWorkers : random.Chance(0.5) ? kWorkers / 2 : 2;
  act.first = static_cast<int>(random.Between(0, kWorkers / act.size - 1)) * act.size;
  if (act.size >= 4 && act.order.shift && act.order.shift->tokens % 2 == 0) act.order.shift->tp = 2;
  return act;
}

FormationAct Release(Random& random, TimeUs at_us) {
  FormationAct act{.at_us = at_us};  // of the whole group
  act.order.act = FormationOrder::Act::kRelease;
  if (random.Chance(0.6)) act.order.how = scheduler::Switch::kHard;
  return act;
}

// Binds and releases in turn. Where own sequences end first, a bind takes as long as they do.
void MakeTurns(Random& random, Scenario& scenario) {
  for (TimeUs at = random.Between(500, 700) * kMillisecondUs; at < scenario.heals_us;) {
    scenario.orders.push_back(Bind(random, at));
    at += random.Between(60, 400) * kMillisecondUs;
    if (at >= scenario.heals_us) break;
    scenario.orders.push_back(Release(random, at));
    at += random.Between(20, 200) * kMillisecondUs;
  }
}

}  // namespace

std::span<const PointedCase> PointedCases() {
  static const auto* const cases = new std::vector<PointedCase>(AllCases());
  return *cases;
}

std::string NameOf(const PointedCase& one) {
  std::string name =
      absl::StrCat(one.lead ? "a_lead_" : "a_member_", one.kills ? "killed_at_" : "stopped_at_",
                   services::testing::NameOf(one.point));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

Scenario MakePointedScenario(uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15u + 113);
  Scenario scenario;
  scenario.seed = seed;
  MakeSpeeds(random, {.delay_most_us = 2000, .step_most_us = 3000}, scenario);
  scenario.prefill_workers = static_cast<int>(random.Between(2, 3));
  scenario.decode_workers = kWorkers;
  scenario.kv_heads = 2 << random.Between(0, 2);
  scenario.decode_blocks = static_cast<int>(random.Between(38, 50));
  scenario.router_streams = 40;
  scenario.formations = FormationPlan{.automatic = false, .shift_tokens = random.Between(0, 4)};
  if (random.Chance(0.5)) {
    scenario.formations->own_share = static_cast<double>(random.Between(1, 9)) * 0.1;
  }
  MakeSteadyWorkload(random, scenario);
  MakeTurns(random, scenario);
  MakeSamplings(seed, scenario);
  if (seed / PointedCases().size() % 4 == 3) MakeStaging(random, scenario);
  const PointedCase& one = PointedCases()[seed % PointedCases().size()];
  const bool steps = one.point >= FaultPoint::kStepLaunched && one.point <= FaultPoint::kStepEnded;
  scenario.pointed = PointedFault{.point = one.point,
                                  .kills = one.kills,
                                  .lead = one.lead,
                                  .passes = static_cast<int>(random.Between(0, steps ? 60 : 2)),
                                  .amid_handoffs = seed / PointedCases().size() % 2 == 1,
                                  .lasts_us = random.Between(50, 600) * kMillisecondUs};
  return scenario;
}

}  // namespace skein::sim
