// 200 seeds of the whole cluster in virtual time; every prompt is computed by one instance, half of
// them hand KV over through staging buffers. A failing seed is printed with the flags that replay
// it (seed_main.h).
#include <cstdint>

#include "tests/sim/every_world.h"
#include "tests/sim/variations.h"

namespace skein::sim {
namespace {

const auto kSlices = ::testing::ValuesIn(SlicesOf(MakeScenario, 5, /*slices=*/20, /*seeds=*/10));

class SimTest : public EveryWorldTest {};

TEST_P(SimTest, KeepsTheInvariantsAndHeals) {
  const Outcome sum = RunSlice(GetParam().number, GetParam().seeds, MakeScenario);
  EXPECT_GT(sum.requests, 0);
  EXPECT_GT(sum.failed_alone, 0);
  EXPECT_GT(sum.parts_copied, 0);
}

// Up to five leases of an instance at a time, and nothing else breaks.
TEST_P(SimTest, AnOrchestratorThatStandsStillTakesNobodyForDead) {
  Scenario scenario = Faultless();
  scenario.faultless = false;
  for (TimeUs at = 150 * scheduler::kMillisecondUs; at < scenario.heals_us;) {
    const TimeUs lasts =
        static_cast<TimeUs>(1 + GetParam().number % 5) * 300 * scheduler::kMillisecondUs;
    scenario.faults.push_back(
        {.kind = FaultKind::kStandstill, .worker = -1, .at_us = at, .lasts_us = lasts});
    at += lasts + 50 * scheduler::kMillisecondUs;
  }
  const Outcome outcome = RunWorld(scenario);
  EXPECT_EQ(outcome.violation, "");
  EXPECT_EQ(outcome.instances_lost, 0);
}

// Blocks are not given to others while a writer may still put into them.
TEST_P(SimTest, SlowWritersHarmNobody) {
  const Slice& slice = GetParam();
  for (uint64_t seed = slice.first(); seed < slice.first() + slice.seeds / 2; ++seed) {
    const Outcome outcome = RunWorld(MakeSlowWritersScenario(seed));
    EXPECT_EQ(outcome.violation, "") << "seed " << seed << " with slow writers";
    EXPECT_GT(outcome.finished, 0);
  }
}

// A decode worker of another build is not registered, and no block of its layout is written or
// read.
TEST_P(SimTest, AnotherBuildGetsNoRequest) {
  Scenario scenario = Faultless();
  LetAnotherBuildCome(&scenario);
  const Outcome outcome = RunWorld(scenario);
  EXPECT_EQ(outcome.violation, "") << "seed " << scenario.seed << " with another build";
  EXPECT_GT(outcome.faults, 0);
}

INSTANTIATE_TEST_SUITE_P(Alone, SimTest, kSlices);
INSTANTIATE_TEST_SUITE_P(Alone, EveryWorldTest, kSlices);

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeScenario);
}
