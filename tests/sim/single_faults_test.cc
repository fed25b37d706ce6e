// Each kind of single fault (single_faults.h), while long streams run and the rest has room to
// spare: no client gets an error, but those of a router that died; every answer is the one of its
// request alone, no client waits longer than the configured limits say, and what a dead router's
// clients asked holds no blocks for longer (OrchestratorProcess::CheckAbandoned). A failing seed is
// printed with the flags that replay it.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

#include "tests/sim/seed_main.h"
#include "tests/sim/single_faults.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSeeds = 2;

class SingleFaultsTest : public ::testing::TestWithParam<size_t> {};

TEST_P(SingleFaultsTest, FailsNoRequestAndRecoversInTime) {
  const SingleFault& fault = SingleFaults()[GetParam()];
  for (uint64_t i = 0; i < kSeeds; ++i) {
    const uint64_t world = seed_flags.first_seed + i;
    const uint64_t seed = (world - 1) * SingleFaults().size() + GetParam();  // of both
    const Scenario scenario = MakeSingleFaultScenario(fault, world);
    const Outcome without = RunWorld(MakeUnbrokenScenario(world));
    const Outcome with = RunWorld(scenario);
    ASSERT_EQ(without.violation, "") << "without the fault of --seed=" << seed;
    ASSERT_EQ(with.violation, "") << "replay with --seed=" << seed << " --trace";
    EXPECT_EQ(with.finished + with.abandoned, with.requests);
    if (fault.kind != FaultKind::kRouterCrash) {
      EXPECT_EQ(with.abandoned, 0);
    }
    const TimeUs most_us =
        LongestWaitUs(fault, scenario, without.longest_waits, with.longest_waits);
    for (const auto& [serial, wait_us] : with.longest_waits) {
      EXPECT_LE(wait_us, most_us) << "client " << serial << "; replay with --seed=" << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, SingleFaultsTest,
                         ::testing::Range<size_t>(0, SingleFaults().size()),
                         [](const auto& info) { return NameOf(SingleFaults()[info.param]); });

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeAnySingleFaultScenario);
}
