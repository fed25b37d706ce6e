// The real orchestrator's core and eight decode workers, one of which dies or is stopped at a named
// point: before, during and after each phase of a formation, the lead or another rank, while
// requests run and handoffs are on their way. The others work alone within the deadline, which
// follows from the configured limits and is checked in virtual time (FormationWatch). All tokens
// are right, no block is lost, requests that lost a member end honestly, and in the end all serve.
// A failing seed is printed with the flags that replay it (seed_main.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <utility>

#include "tests/sim/pointed_worlds.h"
#include "tests/sim/seed_main.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSeeds = 8;  // of each case

class FormationPointsTest : public ::testing::TestWithParam<uint64_t> {};

TEST_P(FormationPointsTest, TheOthersWorkAloneWithinTheDeadline) {
  const uint64_t cases = PointedCases().size();
  int struck = 0, widest = 0;
  int64_t handoffs = 0;
  TimeUs alone_us = 0, within_us = 0;
  Outcome sum;
  for (uint64_t i = 0; i < kSeeds; ++i) {
    const uint64_t seed = (seed_flags.first_seed + i) * cases + GetParam();
    const Outcome outcome = RunWorld(MakePointedScenario(seed));
    EXPECT_EQ(outcome.violation, "") << "replay with --seed=" << seed << " --trace";
    Add(outcome, &sum);
    if (!outcome.struck.has_value()) continue;
    ++struck;
    handoffs += outcome.struck->handoffs;
    widest = std::max(widest, outcome.struck->part.size);
    if (outcome.struck->alone_us < alone_us) continue;
    alone_us = outcome.struck->alone_us;
    within_us = outcome.struck->within_us;
  }
  std::printf(
      "%s: struck in %d of %d worlds, in groups of up to %d, with %lld handoffs on their way; the "
      "others alone after %.1f ms at most, of %.1f\n",
      NameOf(PointedCases()[GetParam()]).c_str(), struck, static_cast<int>(kSeeds), widest,
      static_cast<long long>(handoffs), static_cast<double>(alone_us) * 1e-3,
      static_cast<double>(within_us) * 1e-3);
  EXPECT_GE(struck, static_cast<int>(kSeeds) / 2) << "the point was not reached";
  EXPECT_EQ(widest, 8);
  EXPECT_GT(handoffs, 0);
  EXPECT_GT(sum.finished * 3, sum.requests) << "too little is served for this to mean anything";
}

INSTANTIATE_TEST_SUITE_P(Points, FormationPointsTest,
                         ::testing::Range<uint64_t>(0, PointedCases().size()),
                         [](const auto& info) { return NameOf(PointedCases()[info.param]); });

// The list is whole: each point, killed and stopped, at a lead and where it can be at a member.
TEST(PointedCasesTest, EachPointIsInIt) {
  std::set<std::string> names;
  for (const PointedCase& one : PointedCases()) names.insert(NameOf(one));
  EXPECT_EQ(names.size(), PointedCases().size());
  EXPECT_EQ(names.size(), 32u);
  for (int i = 1; i <= static_cast<int>(FaultPoint::kEnded); ++i) {
    for (const bool kills : {true, false}) {
      const PointedCase at_lead{.point = static_cast<FaultPoint>(i), .kills = kills, .lead = true};
      EXPECT_TRUE(names.contains(NameOf(at_lead))) << NameOf(at_lead);
    }
  }
}

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakePointedScenario);
}
