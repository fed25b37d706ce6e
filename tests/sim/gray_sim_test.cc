// Slow devices, steps that hang and clients that do not read (gray_worlds.h), and token streams
// that fall silent (silent_worlds.h): no request fails, no answer is lost or wrong, everything
// ends; and the rules for slow and hung instances are met, with limits that each seed chooses. A
// failing seed is printed; tests/sim:search --kind=gray (unread, silent_streams) replays it.
#include "tests/sim/gray_worlds.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/sim/seed_main.h"
#include "tests/sim/silent_worlds.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSeeds = 12;

Outcome RunAll(MakeWorld make) {
  Outcome sum;
  for (uint64_t i = 0; i < kSeeds; ++i) {
    const uint64_t seed = seed_flags.first_seed + i;
    const Outcome outcome = RunWorld(make(seed));
    EXPECT_EQ(outcome.violation, "") << "seed " << seed;
    EXPECT_EQ(outcome.finished, outcome.requests) << "seed " << seed;
    Add(outcome, &sum);
  }
  return sum;
}

TEST(GraySimTest, GrayDevicesAndHungStepsFailNoRequest) {
  const Outcome sum = RunAll(MakeGrayScenario);
  EXPECT_GT(sum.suspected, 0);
  EXPECT_GT(sum.set_aside, 0);
  EXPECT_GT(sum.hung, 0);
}

// Their tokens stay at the decode workers but for a few, and others get theirs.
TEST(GraySimTest, ClientsThatDoNotReadLoseNothing) {
  const Outcome sum = RunAll(MakeUnreadScenario);
  EXPECT_GT(sum.paused, 0);
}

// Only a keepalive tells the ends of some of them, and only the silence's end those of others.
TEST(GraySimTest, TokenStreamsThatFallSilentFailNoRequest) {
  const Outcome sum = RunAll(MakeSilentScenario);
  EXPECT_GT(sum.faults_met, 0);
  EXPECT_GT(sum.keepalives, 0);
}

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeGrayScenario);
}
