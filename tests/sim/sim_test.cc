// 200 seeds of the whole cluster in virtual time, in slices that Bazel shards. A failing seed is
// printed with the flags that replay it. Flags: --seed=N runs one seed, --trace prints its log,
// --first_seed=N moves all slices (a longer search: other seeds, same test).
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "tests/sim/world.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSlices = 20;
constexpr uint64_t kSeedsPerSlice = 10;

std::optional<uint64_t> g_seed;
uint64_t g_first_seed = 1;
bool g_trace = false;

Outcome RunSeed(uint64_t seed) { return World(seed, g_trace).Run(); }

class SimTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(SimTest, KeepsTheInvariantsAndHeals) {
  const uint64_t first = g_first_seed + GetParam() * kSeedsPerSlice;
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
  const uint64_t seed = g_first_seed + GetParam() * kSeedsPerSlice;
  const uint64_t hash = RunSeed(seed).trace_hash;
  EXPECT_EQ(RunSeed(seed).trace_hash, hash) << "seed " << seed;
  EXPECT_NE(RunSeed(seed + 1).trace_hash, hash);
}

INSTANTIATE_TEST_SUITE_P(Slices, SimTest, ::testing::Range<uint64_t>(0, kSlices));

void ParseFlags(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--seed=", 7) == 0) g_seed = std::strtoull(argv[i] + 7, nullptr, 10);
    if (std::strncmp(argv[i], "--first_seed=", 13) == 0) {
      g_first_seed = std::strtoull(argv[i] + 13, nullptr, 10);
    }
    if (std::strcmp(argv[i], "--trace") == 0) g_trace = true;
  }
}

int Replay(uint64_t seed) {
  const Outcome outcome = RunSeed(seed);
  std::printf("seed %llu: %s; %llu actions, %lld of %lld requests finished, trace %016llx\n",
              static_cast<unsigned long long>(seed),
              outcome.violation.empty() ? "ok" : outcome.violation.c_str(),
              static_cast<unsigned long long>(outcome.actions),
              static_cast<long long>(outcome.finished), static_cast<long long>(outcome.requests),
              static_cast<unsigned long long>(outcome.trace_hash));
  return outcome.violation.empty() ? 0 : 1;
}

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  skein::sim::ParseFlags(argc, argv);
  if (skein::sim::g_seed.has_value()) return skein::sim::Replay(*skein::sim::g_seed);
  return RUN_ALL_TESTS();
}
