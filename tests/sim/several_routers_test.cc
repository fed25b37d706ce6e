// Worlds of two to four routers (several_routers.h). A failing seed is printed with the flags that
// replay it, but one of MakeOneRouterScenario: tests/sim:search --kind=one_router replays it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "tests/sim/seed_main.h"
#include "tests/sim/several_routers.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSlices = 8;
constexpr uint64_t kSeedsPerSlice = 15;

class SeveralRoutersTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(SeveralRoutersTest, KeepTheInvariantsAndHeal) {
  const Outcome sum = RunSlice(GetParam(), kSeedsPerSlice, MakeSeveralRoutersScenario);
  EXPECT_GT(sum.faults_met, 0);
}

// All other clients get their whole answers; what the dead router's clients asked holds no blocks
// for longer (OrchestratorProcess::CheckAbandoned).
TEST_P(SeveralRoutersTest, ABrokenRouterConcernsItsOwnClientsOnly) {
  constexpr uint64_t kSeeds = 8;
  Outcome sum;
  for (uint64_t i = 0; i < kSeeds; ++i) {
    const uint64_t seed = seed_flags.first_seed + GetParam() * kSeeds + i;
    const Scenario scenario = MakeOneRouterScenario(seed);
    const Outcome outcome = RunWorld(scenario);
    EXPECT_EQ(outcome.violation, "") << "replay with --kind=one_router --first_seed=" << seed;
    EXPECT_EQ(outcome.finished + outcome.abandoned, outcome.requests) << "seed " << seed;
    const bool died =
        std::any_of(scenario.faults.begin(), scenario.faults.end(),
                    [](const Fault& fault) { return fault.kind == FaultKind::kRouterCrash; });
    EXPECT_TRUE(died || outcome.abandoned == 0) << "seed " << seed;
    Add(outcome, &sum);
  }
  EXPECT_GT(sum.faults_met, 0);
  EXPECT_GT(sum.abandoned, 0);
  EXPECT_GT(sum.connections_refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Slices, SeveralRoutersTest, ::testing::Range<uint64_t>(0, kSlices));

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeSeveralRoutersScenario);
}
