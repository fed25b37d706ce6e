// Half a minute of virtual time a seed: streams of a hundred tokens under production-like timeouts,
// while workers and the orchestrator die, hang, drain, stand still and are cut off. A failing seed
// is printed with the flags that replay it (seed_main.h).
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/sim/seed_main.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSlices = 20;
constexpr uint64_t kSeedsPerSlice = 40;

class LongSimTest : public ::testing::TestWithParam<uint64_t> {};

// All slices together: 20,000 virtual seconds with a request in flight, or more.
TEST_P(LongSimTest, KeepsTheInvariantsAndHeals) {
  const Outcome sum = RunSlice(GetParam(), kSeedsPerSlice, MakeLongScenario);
  EXPECT_GE(sum.in_flight_us, 20'000 * scheduler::kSecondUs / static_cast<TimeUs>(kSlices));
  EXPECT_GT(sum.failed_alone, 0);
  EXPECT_GT(sum.faults_met, 2 * static_cast<int64_t>(kSeedsPerSlice));
}

INSTANTIATE_TEST_SUITE_P(Slices, LongSimTest, ::testing::Range<uint64_t>(0, kSlices));

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeLongScenario);
}
