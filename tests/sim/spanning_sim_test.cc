// Seeds of clusters whose plans span instances, under the orchestrator's policies, with random
// cancels and an instance that dies every now and then: no deadlock, no lost block, each request
// ends exactly once. A failing seed is printed with the flags that replay it (seed_main.h); the
// long run: --plans=10000.
#include <gtest/gtest.h>

#include <cstdint>

#include "tests/sim/seed_main.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSlices = 8;
constexpr uint64_t kSeedsPerSlice = 6;

Outcome RunSeed(uint64_t seed) { return World(MakeSpanningScenario(seed), seed_flags.trace).Run(); }

class SpanningSimTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(SpanningSimTest, KeepsTheInvariantsAndHeals) {
  const uint64_t first = seed_flags.first_seed + GetParam() * kSeedsPerSlice;
  Outcome sum;
  for (uint64_t seed = first; seed < first + kSeedsPerSlice; ++seed) {
    const Outcome outcome = RunSeed(seed);
    EXPECT_EQ(outcome.violation, "") << "replay with --seed=" << seed << " --trace";
    sum.requests += outcome.requests;
    sum.finished += outcome.finished;
    sum.spanning_plans += outcome.spanning_plans;
    sum.joint_steps += outcome.joint_steps;
  }
  EXPECT_GT(sum.finished * 3, sum.requests) << "too little is served for this to mean anything";
  EXPECT_GT(sum.spanning_plans, 20);
  EXPECT_GT(sum.joint_steps, 20);
}

TEST_P(SpanningSimTest, SameSeedSameTrace) {
  const uint64_t seed = seed_flags.first_seed + GetParam() * kSeedsPerSlice;
  EXPECT_EQ(RunSeed(seed).trace_hash, RunSeed(seed).trace_hash) << "seed " << seed;
}

INSTANTIATE_TEST_SUITE_P(Slices, SpanningSimTest, ::testing::Range<uint64_t>(0, kSlices));

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeSpanningScenario);
}
