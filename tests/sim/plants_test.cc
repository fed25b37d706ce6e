// Bugs planted in the code (scheduler/base/plant.h), one at a time: a few seeds of the worlds that
// the other simulations of this folder run find each of them, and nothing where nothing is planted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string_view>

#include "scheduler/base/plant.h"
#include "tests/sim/kinds.h"
#include "tests/sim/seed_main.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSeeds = 20;  // of each kind of world

// Half a minute of virtual time each, or a thousand requests, is too much here, and finds nothing
// sooner; nor do worlds with formations.
bool IsShort(const Kind& kind) {
  constexpr std::string_view kLong[] = {
      "long",       "single_faults",     "several_routers", "one_router", "several_orchestrators",
      "one_leader", "resigning_leaders", "silent_streams",  "gray",       "unread",
      "dense"};
  return std::find(std::begin(kLong), std::end(kLong), kind.name) == std::end(kLong) &&
         !kind.name.starts_with("formations");
}

class PlantsTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { planted_bug = GetParam(); }
  void TearDown() override { planted_bug = ""; }
};

// Routers that try again what is lost hide these from clients.
bool IsHiddenByResuming(std::string_view plant) {
  return plant == "replan_gives_up" || plant == "stream_dropped_at_resync";
}

// How many worlds until one is violated; 0: none is. They do not count in the statistics: what a
// bug reaches is not reached.
uint64_t WorldsUntilCaught(std::string_view plant) {
  uint64_t worlds = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    for (const Kind& kind : Kinds()) {
      if (!IsShort(kind)) continue;
      ++worlds;
      Scenario scenario = kind.make(seed);
      if (IsHiddenByResuming(plant)) scenario.resumes = false;
      const Outcome outcome = World(scenario, /*print_trace=*/false).Run();
      if (outcome.violation.empty()) continue;
      std::printf("%.*s: caught by %.*s %llu, after %llu worlds: %s\n",
                  static_cast<int>(plant.size()), plant.data(), static_cast<int>(kind.name.size()),
                  kind.name.data(), static_cast<unsigned long long>(seed),
                  static_cast<unsigned long long>(worlds), outcome.violation.c_str());
      return worlds;
    }
  }
  return 0;
}

TEST_P(PlantsTest, IsCaught) { EXPECT_GT(WorldsUntilCaught(GetParam()), 0u); }

INSTANTIATE_TEST_SUITE_P(
    Bugs, PlantsTest,
    ::testing::Values("quarantine_freed_early", "stale_epoch_accepted", "replan_gives_up",
                      "end_lost_over_a_resync", "stream_dropped_at_resync", "prompt_starved",
                      "one_sequence_fails_its_batch", "sampler_index_off_by_one",
                      "penalties_forget", "block_of_the_wrong_layout", "token_epoch_ignored",
                      "early_message_refused", "refusal_forgets_kv", "resume_at_wrong_index",
                      "sent_tokens_forgotten", "reattach_at_wrong_index"),
    [](const auto& info) { return std::string(info.param); });

TEST(NoPlantTest, TheSameSeedsFindNothing) {
  ASSERT_EQ(planted_bug, "");
  for (const Kind& kind : Kinds()) {
    if (!IsShort(kind)) continue;
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      EXPECT_EQ(RunWorld(kind.make(seed)).violation, "") << kind.name << " " << seed;
    }
  }
}

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeScenario);
}
