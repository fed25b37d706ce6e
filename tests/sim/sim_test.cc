// 200 seeds of the whole cluster in virtual time, in slices that Bazel shards; every prompt is
// computed by one instance, half of them hand KV over through staging buffers. A failing seed is
// printed with the flags that replay it (seed_main.h).
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/sim/seed_main.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSlices = 20;
constexpr uint64_t kSeedsPerSlice = 10;

class SimTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(SimTest, KeepsTheInvariantsAndHeals) {
  const Outcome sum = RunSlice(GetParam(), kSeedsPerSlice, MakeScenario);
  EXPECT_GT(sum.requests, 0);
  EXPECT_GT(sum.failed_alone, 0);
  EXPECT_GT(sum.parts_copied, 0);
}

TEST_P(SimTest, OverloadEndsNothingThatWasAccepted) {
  RunLimited(GetParam(), kSeedsPerSlice, MakeScenario);
}

TEST_P(SimTest, SameSeedSameTrace) {
  ExpectSameTrace(seed_flags.first_seed + GetParam() * kSeedsPerSlice, MakeScenario);
}

// Up to five leases of an instance at a time, and nothing else breaks.
TEST_P(SimTest, AnOrchestratorThatStandsStillTakesNobodyForDead) {
  Scenario scenario = MakeScenario(5 * (GetParam() + 1));
  ASSERT_TRUE(scenario.faultless);
  scenario.faultless = false;
  for (TimeUs at = 150 * scheduler::kMillisecondUs; at < scenario.heals_us;) {
    const TimeUs lasts = static_cast<TimeUs>(1 + GetParam() % 5) * 300 * scheduler::kMillisecondUs;
    scenario.faults.push_back(
        {.kind = FaultKind::kStandstill, .worker = -1, .at_us = at, .lasts_us = lasts});
    at += lasts + 50 * scheduler::kMillisecondUs;
  }
  const Outcome outcome = RunWorld(scenario);
  EXPECT_EQ(outcome.violation, "");
  EXPECT_EQ(outcome.instances_lost, 0);
}

TEST_P(SimTest, OneFaultWithRoomToSpareFailsNoRequest) {
  RunWithoutExcuse(GetParam(), kSeedsPerSlice, 5, MakeScenario);
}

// No request fails, each worker is emptied and serves again: CheckHonest and CheckRest see to it.
TEST_P(SimTest, AnOperatorsDrainFailsNoRequest) {
  Scenario scenario = MakeScenario(5 * (GetParam() + 1));
  ASSERT_TRUE(scenario.faultless);
  OrderDrains(&scenario);
  const Outcome outcome = RunWorld(scenario);
  EXPECT_EQ(outcome.violation, "");
  EXPECT_GT(outcome.drains_ordered, 0);
}

INSTANTIATE_TEST_SUITE_P(Slices, SimTest, ::testing::Range<uint64_t>(0, kSlices));

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeScenario);
}
