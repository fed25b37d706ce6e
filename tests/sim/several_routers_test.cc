// Worlds of two to four routers (several_routers.h). A failing seed is printed with the flags that
// replay it.
#include <gtest/gtest.h>

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

INSTANTIATE_TEST_SUITE_P(Slices, SeveralRoutersTest, ::testing::Range<uint64_t>(0, kSlices));

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeSeveralRoutersScenario);
}
