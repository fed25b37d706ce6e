// Worlds of two and three orchestrators (several_orchestrators.h). A failing seed is printed with
// the flags that replay it, but those of other worlds than MakeSeveralOrchestratorsScenario:
// tests/sim:search --kind=one_leader (deaf_leader, resigning_leaders, formations_several) replays
// these.
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/sim/seed_main.h"
#include "tests/sim/several_orchestrators.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSlices = 8;
constexpr uint64_t kSeedsPerSlice = 15;

class SeveralOrchestratorsTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(SeveralOrchestratorsTest, KeepTheInvariantsAndHeal) {
  const Outcome sum = RunSlice(GetParam(), kSeedsPerSlice, MakeSeveralOrchestratorsScenario);
  EXPECT_GT(sum.faults_met, 0);
  EXPECT_GT(sum.leaderships, static_cast<int64_t>(kSeedsPerSlice));
}

// Running answers go on, and what was submitted is planned by the next leader.
TEST_P(SeveralOrchestratorsTest, ALeaderThatIsLostFailsNoRequest) {
  constexpr uint64_t kSeeds = 8;
  Outcome sum;
  for (uint64_t i = 0; i < kSeeds; ++i) {
    const uint64_t seed = seed_flags.first_seed + GetParam() * kSeeds + i;
    const Outcome outcome = RunWorld(MakeOneLeaderScenario(seed));
    EXPECT_EQ(outcome.violation, "") << "replay with --kind=one_leader --first_seed=" << seed;
    EXPECT_EQ(outcome.finished, outcome.requests) << "seed " << seed;
    Add(outcome, &sum);
  }
  EXPECT_GT(sum.faults_met, 0);
  EXPECT_GT(sum.leaderships, static_cast<int64_t>(kSeeds));
}

// Another one leads, if it can hear; and where none can, leadership does not change for ever.
TEST_P(SeveralOrchestratorsTest, ALeaderThatHearsNobodyFailsNoRequest) {
  constexpr uint64_t kSeeds = 8;
  Outcome sum;
  for (uint64_t i = 0; i < kSeeds; ++i) {
    const uint64_t seed = seed_flags.first_seed + GetParam() * kSeeds + i;
    const Outcome outcome = RunWorld(MakeDeafLeaderScenario(seed));
    EXPECT_EQ(outcome.violation, "") << "replay with --kind=deaf_leader --first_seed=" << seed;
    EXPECT_EQ(outcome.finished, outcome.requests) << "seed " << seed;
    EXPECT_GE(outcome.leaderships, 2) << "seed " << seed;
    EXPECT_LE(outcome.leaderships, 4) << "seed " << seed;
    Add(outcome, &sum);
  }
  EXPECT_GT(sum.faults_met, 0);
}

TEST_P(SeveralOrchestratorsTest, ALeaderThatResignsFailsNoRequest) {
  constexpr uint64_t kSeeds = 4;
  Outcome sum;
  for (uint64_t i = 0; i < kSeeds; ++i) {
    const uint64_t seed = seed_flags.first_seed + GetParam() * kSeeds + i;
    const Outcome outcome = RunWorld(MakeResigningScenario(seed));
    EXPECT_EQ(outcome.violation, "")
        << "replay with --kind=resigning_leaders --first_seed=" << seed;
    EXPECT_EQ(outcome.finished, outcome.requests) << "seed " << seed;
    Add(outcome, &sum);
  }
  EXPECT_GT(sum.faults_met, 0);
  EXPECT_GT(sum.leaderships, static_cast<int64_t>(kSeeds));
}

TEST_P(SeveralOrchestratorsTest, FormationsGoOnUnderTheNextLeader) {
  constexpr uint64_t kSeeds = 4;
  const Outcome sum = RunSlice(GetParam(), kSeeds, MakeFormationsOfSeveralScenario);
  EXPECT_GT(sum.binds, 0);
  EXPECT_GT(sum.leaderships, static_cast<int64_t>(kSeeds));
}

INSTANTIATE_TEST_SUITE_P(Slices, SeveralOrchestratorsTest, ::testing::Range<uint64_t>(0, kSlices));

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeSeveralOrchestratorsScenario);
}
