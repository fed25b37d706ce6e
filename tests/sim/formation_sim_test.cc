// Seeds of clusters whose decode workers bind and release while their requests run: every stream
// gets exactly its tokens, no block is lost, every switch ends, and in the end all work alone. A
// failing seed is printed with the flags that replay it (seed_main.h).
#include <cstdint>
#include <utility>

#include "tests/sim/every_world.h"
#include "tests/sim/formation_worlds.h"
#include "tests/sim/small_pools.h"
#include "tests/sim/variations.h"

namespace skein::sim {
namespace {

const auto kSlices =
    ::testing::ValuesIn(SlicesOf(MakeFormationScenario, 4, /*slices=*/8, /*seeds=*/4));

class FormationSimTest : public EveryWorldTest {};

// Pools grow with shared weights, and are small without.
Scenario GrowingPools(Scenario scenario) {
  ShareWeights(&scenario);
  ShrinkPools(&scenario);
  scenario.formations->extra_blocks = 20;
  return scenario;
}

TEST_P(FormationSimTest, KeepsTheInvariantsAndHeals) {
  const Outcome sum = RunSlice(GetParam().number, GetParam().seeds, MakeFormationScenario);
  EXPECT_GT(sum.binds, 0);
  EXPECT_GT(sum.releases, 0);
  EXPECT_GT(sum.group_steps, 0);
  EXPECT_GT(sum.granted_to_groups, 0);
}

// Sequences are preempted; those of a lead go on in its group.
TEST_P(FormationSimTest, SmallPoolsLoseNothing) {
  const Slice& slice = GetParam();
  for (uint64_t seed = slice.first(); seed < slice.first() + 2; ++seed) {
    Scenario scenario = slice.make(seed);
    ShrinkPools(&scenario);
    EXPECT_EQ(RunWorld(std::move(scenario)).violation, "") << "seed " << seed;
  }
}

// Instances share their weights and give them back, while all else happens. The mode of groups in
// these short worlds does not change: formation_switch_random_test.cc has that.
TEST_P(FormationSimTest, SharedWeightsLoseNothing) {
  const Slice& slice = GetParam();
  Outcome sum;
  for (uint64_t seed = slice.first(); seed < slice.first() + 4; ++seed) {
    Scenario scenario = slice.make(seed);
    ShareWeights(&scenario);
    const Outcome one = RunWorld(std::move(scenario));
    EXPECT_EQ(one.violation, "") << "seed " << seed;
    sum.shares += one.shares;
  }
  EXPECT_GT(sum.shares, 0);
}

// Sequences have to be moved or preempted when the blocks go.
TEST_P(FormationSimTest, SmallPoolsThatGrowAndShrinkLoseNothing) {
  const Slice& slice = GetParam();
  for (uint64_t seed = slice.first(); seed < slice.first() + 4; ++seed) {
    EXPECT_EQ(RunWorld(GrowingPools(slice.make(seed))).violation, "") << "seed " << seed;
  }
}

TEST(GrowingPools, SequencesAreMovedOutOfBlocksThatGo) {
  int64_t blocks_moved = 0;
  for (uint64_t seed = 1; seed <= 40 && blocks_moved == 0; ++seed) {
    const Outcome one = RunWorld(GrowingPools(MakeFormationScenario(seed)));
    EXPECT_EQ(one.violation, "") << "seed " << seed;
    blocks_moved += one.blocks_moved;
  }
  EXPECT_GT(blocks_moved, 0);
}

INSTANTIATE_TEST_SUITE_P(Formations, FormationSimTest, kSlices);
INSTANTIATE_TEST_SUITE_P(Formations, EveryWorldTest, kSlices);

const auto kLongSlices =
    ::testing::ValuesIn(SlicesOf(MakeLongRequestsScenario, 4, /*slices=*/4, /*seeds=*/4));

class LongRequestsSimTest : public EveryWorldTest {};

// Those that fit no decode worker alone are computed by groups.
TEST_P(LongRequestsSimTest, KeepsTheInvariantsAndHeals) {
  const Outcome sum = RunSlice(GetParam().number, GetParam().seeds, MakeLongRequestsScenario);
  EXPECT_GT(sum.finished_in_groups, 0);
}

INSTANTIATE_TEST_SUITE_P(LongRequests, LongRequestsSimTest, kLongSlices);
INSTANTIATE_TEST_SUITE_P(LongRequests, EveryWorldTest, kLongSlices);

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeFormationScenario);
}
