// Seeds of clusters whose plans span instances, under the orchestrator's policies, with random
// cancels and an instance that dies every now and then: no deadlock, no lost block, each request
// ends exactly once. Half of them hand KV over through staging buffers. A failing seed is printed
// with the flags that replay it (seed_main.h); the long run: --plans=10000.
#include <cstdint>
#include <utility>

#include "tests/sim/every_world.h"
#include "tests/sim/variations.h"

namespace skein::sim {
namespace {

const auto kSlices = ::testing::ValuesIn(SlicesOf(MakeSpScenario, 4, /*slices=*/8, /*seeds=*/6));

class SpSimTest : public EveryWorldTest {};

TEST_P(SpSimTest, KeepsTheInvariantsAndHeals) {
  const Outcome sum = RunSlice(GetParam().number, GetParam().seeds, MakeSpScenario);
  EXPECT_GT(sum.parts_copied, 0);
  EXPECT_GT(sum.failed_alone, 0);
  EXPECT_GT(sum.sp_plans, 20);
  EXPECT_GT(sum.joint_steps, 20);
}

// Each step has the tensor group that it needs, whatever breaks, and its members agree on tp.
TEST_P(SpSimTest, ChunksThatShareTheDensePartKeepTheInvariants) {
  const Slice& slice = GetParam();
  Outcome sum;
  for (uint64_t seed = slice.first(); seed < slice.first() + slice.seeds; ++seed) {
    Scenario scenario = slice.make(seed);
    ShareDenseParts(2, &scenario);
    const Outcome outcome = RunWorld(std::move(scenario));
    EXPECT_EQ(outcome.violation, "") << "seed " << seed << " with tp 2";
    Add(outcome, &sum);
  }
  EXPECT_GT(sum.tensor_steps, 0);
}

// A request fails every engine that computes it, and nothing else breaks: two engines fall at most
// (there are three or more), then it ends, and no other request fails: CheckHonest sees to it.
TEST_P(SpSimTest, ARequestThatFailsEnginesHarmsNoOther) {
  Scenario scenario = Faultless();
  scenario.prefill_blocks = 40;  // room to spare: each prompt fits one instance
  LetClientsFailEngines(1, &scenario);
  const Outcome outcome = RunWorld(scenario);
  EXPECT_EQ(outcome.violation, "") << "seed " << scenario.seed;
  EXPECT_GT(outcome.engines_failed, 0);
  EXPECT_LE(outcome.engines_failed, 2);
}

// The same, and the orchestrator dies between the first failure and the second: the next one hears
// of the first from the router, and plans the request no third time. A third engine may fail under
// the plan that was under way when the orchestrator died; its worker tells the next one.
TEST_P(SpSimTest, ARequestThatFailsEnginesIsRememberedOverARestart) {
  Scenario scenario = Faultless();
  scenario.prefill_blocks = 40;
  scenario.dies_after_engine_failure = true;
  LetClientsFailEngines(1, &scenario);
  const Outcome outcome = RunWorld(scenario);
  EXPECT_EQ(outcome.violation, "") << "seed " << scenario.seed;
  EXPECT_EQ(outcome.deaths_after_engine_failure, 1) << "seed " << scenario.seed;
  EXPECT_GE(outcome.engine_failures_heard, 2) << "seed " << scenario.seed;
  EXPECT_LE(outcome.engines_failed, 3) << "seed " << scenario.seed;
}

INSTANTIATE_TEST_SUITE_P(Together, SpSimTest, kSlices);
INSTANTIATE_TEST_SUITE_P(Together, EveryWorldTest, kSlices);

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeSpScenario);
}
