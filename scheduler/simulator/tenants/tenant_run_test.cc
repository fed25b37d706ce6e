#include "scheduler/simulator/tenants/tenant_run.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace skein::scheduler {
namespace {

// Two tenants ask for 60 % of their shares of the prefill instances, a third one for `times` its
// share.
TenantRunConfig With(double times) {
  TenantRunConfig config;
  config.loads = {{.name = "a"}, {.name = "b"}, {.name = "c"}};
  for (TenantLoad& load : config.loads) load.prompt_tokens = 4096;
  const double prompt_s = config.prefill_token_s * 4096 + config.prefill_step_s * 8;
  const double share = config.prefill_instances / prompt_s / 3;  // requests a second
  config.loads[0].requests_per_s = config.loads[1].requests_per_s = 0.6 * share;
  config.loads[2].requests_per_s = times * share;
  config.seconds = 1200;
  return config;
}

double P99OfOthers(const TenantRun& run, std::vector<double> TenantFigures::*of) {
  std::vector<double> both = run.tenants[0].*of;
  both.insert(both.end(), (run.tenants[1].*of).begin(), (run.tenants[1].*of).end());
  return PercentileOf(std::move(both), 0.99);
}

TEST(TenantRun, EveryRequestEndsOrIsRefusedAndAllInvariantsHold) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    TenantRunConfig config = With(4);
    config.check = true;
    config.seed = seed;
    config.seconds = 6;
    for (TenantLoad& load : config.loads) load.prompt_tokens = 600;
    config.loads[0].requests_per_s = config.loads[1].requests_per_s = 2;
    config.loads[2].requests_per_s = 40;
    config.max_streams = 24;
    config.max_queued = 12;
    config.decode_sequences = 8;
    config.loads[0].ttft_goal_us = 300 * kMillisecondUs;
    config.loads[2].weight = 2;
    const TenantRun run = RunTenants(config);
    ASSERT_TRUE(run.status.ok()) << run.status.message();
    int64_t refused = 0;
    for (const TenantFigures& one : run.tenants) {
      EXPECT_EQ(one.sent, one.refused + static_cast<int64_t>(one.ttft_s.size()));
      refused += one.refused;
    }
    EXPECT_GT(run.tenants[2].refused, 0);
    EXPECT_EQ(run.tenants[2].refused, refused) << "the others are not refused";
    EXPECT_EQ(run.tenants[0].goals_met + run.tenants[0].goals_missed, run.tenants[0].sent);
  }
}

TEST(TenantRun, ATenantAtTenTimesItsShareDoesNotMoveTheOthers) {
  const TenantRun idle = RunTenants(With(1e-6));
  const TenantRun burst = RunTenants(With(10));
  for (const size_t tenant : {0, 1}) {
    ASSERT_EQ(idle.tenants[tenant].sent, burst.tenants[tenant].sent);
    ASSERT_EQ(burst.tenants[tenant].refused, 0);
  }
  EXPECT_GT(burst.tenants[2].refused, 0);
  const auto ttft = &TenantFigures::ttft_s;
  const auto tpot = &TenantFigures::tpot_s;
  EXPECT_LE(P99OfOthers(burst, ttft), 1.1 * P99OfOthers(idle, ttft));
  EXPECT_LE(P99OfOthers(burst, tpot), 1.1 * P99OfOthers(idle, tpot));
  TenantRunConfig untold = With(10);
  untold.tell_tenants = false;
  untold.seconds = 60;
  EXPECT_GT(P99OfOthers(RunTenants(untold), ttft), 5 * P99OfOthers(burst, ttft))
      << "where tenants are not known, they wait behind the burst";
}

TEST(TenantRun, ATenantAloneGetsEverything) {
  TenantRunConfig config = With(10);
  config.loads.erase(config.loads.begin(), config.loads.begin() + 2);
  config.seconds = 20;
  TenantRunConfig untold = config;
  untold.tell_tenants = false;
  const TenantRun told = RunTenants(config);
  EXPECT_EQ(told.tenants[0].ttft_s, RunTenants(untold).tenants[0].ttft_s);
}

}  // namespace
}  // namespace skein::scheduler
