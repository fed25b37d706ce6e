// Worlds whose decode instances have little KV memory (small_pools.h): each answer is the one of
// its request alone, whoever was preempted; blocks are conserved; everything ends.
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/sim/seed_main.h"
#include "tests/sim/small_pools.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSlices = 8;
constexpr uint64_t kSeeds = 8;

class SmallPoolsTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  // The sum over the worlds of every `step`-th seed of this slice.
  static Outcome Run(MakeWorld make, uint64_t step) {
    Outcome sum;
    for (uint64_t i = 1; i <= kSeeds; ++i) {
      const uint64_t seed = seed_flags.first_seed + step * (GetParam() * kSeeds + i);
      Scenario scenario = make(seed);
      ShrinkPools(&scenario);
      const Outcome outcome = RunWorld(std::move(scenario));
      EXPECT_EQ(outcome.violation, "") << "seed " << seed << " with small pools";
      Add(outcome, &sum);
    }
    return sum;
  }
};

TEST_P(SmallPoolsTest, FaultsAndPreemptionsChangeNoAnswer) {
  const Outcome sum = Run(MakeScenario, 1);
  EXPECT_GT(sum.resumed, 0);
  EXPECT_GT(sum.finished, 0);
}

TEST_P(SmallPoolsTest, PreemptionsChangeNoAnswerOfPromptsOnSeveralInstances) {
  const Outcome sum = Run(MakeSpScenario, 1);
  EXPECT_GT(sum.resumed, 0);
  EXPECT_GT(sum.finished, 0);
}

// Nothing else breaks: whatever can be served must be.
TEST_P(SmallPoolsTest, PreemptionsAloneFailNoRequest) {
  const Outcome sum = Run([](uint64_t seed) { return MakeScenario(5 * seed); }, 1);
  EXPECT_GT(sum.resumed, 0);
}

INSTANTIATE_TEST_SUITE_P(Worlds, SmallPoolsTest, ::testing::Range<uint64_t>(0, kSlices));

Scenario MakeSmallPools(uint64_t seed) {
  Scenario scenario = MakeScenario(seed);
  ShrinkPools(&scenario);
  return scenario;
}

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeSmallPools);
}
