// 200 seeds of the whole cluster in virtual time, in slices that Bazel shards; every prompt is
// computed by one instance. A failing seed is printed with the flags that replay it (seed_main.h).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>

#include "tests/sim/seed_main.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSlices = 20;
constexpr uint64_t kSeedsPerSlice = 10;

Outcome RunSeed(uint64_t seed) { return World(MakeScenario(seed), seed_flags.trace).Run(); }

class SimTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(SimTest, KeepsTheInvariantsAndHeals) {
  const uint64_t first = seed_flags.first_seed + GetParam() * kSeedsPerSlice;
  Outcome sum;
  for (uint64_t seed = first; seed < first + kSeedsPerSlice; ++seed) {
    const Outcome outcome = RunSeed(seed);
    EXPECT_EQ(outcome.violation, "") << "replay with --seed=" << seed << " --trace";
    sum.actions += outcome.actions;
    sum.requests += outcome.requests;
    sum.finished += outcome.finished;
  }
  std::printf("%llu actions, %lld requests, %lld finished\n",
              static_cast<unsigned long long>(sum.actions), static_cast<long long>(sum.requests),
              static_cast<long long>(sum.finished));
  EXPECT_GT(sum.finished * 3, sum.requests) << "too little is served for this to mean anything";
}

TEST_P(SimTest, SameSeedSameTrace) {
  const uint64_t seed = seed_flags.first_seed + GetParam() * kSeedsPerSlice;
  const uint64_t hash = RunSeed(seed).trace_hash;
  EXPECT_EQ(RunSeed(seed).trace_hash, hash) << "seed " << seed;
  EXPECT_NE(RunSeed(seed + 1).trace_hash, hash);
}

INSTANTIATE_TEST_SUITE_P(Slices, SimTest, ::testing::Range<uint64_t>(0, kSlices));

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeScenario);
}
