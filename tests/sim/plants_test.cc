// Bugs planted in the code (scheduler/base/plant.h), one at a time: the seeds that the other
// simulations of this folder run without a violation find each of them.
//
// Not planted yet: an end that is lost over a resync of a worker's stream, and a token stream that
// is dropped at one. There is no resync yet. Planted, but not found by these seeds:
// quarantine_freed_early, a decode instance that frees blocks while somebody still writes to them;
// it takes a put that stalls while another sequence is given the very blocks.
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string_view>

#include "scheduler/base/plant.h"
#include "tests/sim/seed_main.h"

namespace skein::sim {
namespace {

constexpr uint64_t kSeeds = 200;          // of sim_test
constexpr uint64_t kSpSeeds = 48;         // of sp_sim_test
constexpr uint64_t kNoExcuseSeeds = 200;  // every fifth, without faults

class PlantsTest : public ::testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { planted_bug = GetParam(); }
  void TearDown() override { planted_bug = ""; }
};

// How many worlds until one is violated; 0: none is.
uint64_t WorldsUntilCaught(std::string_view plant) {
  uint64_t worlds = 0;
  const auto caught = [&](Scenario scenario, const char* how) {
    ++worlds;
    const uint64_t seed = scenario.seed;
    const Outcome outcome = RunWorld(std::move(scenario));
    if (outcome.violation.empty()) return false;
    std::printf("%.*s: caught by %s %llu, after %llu worlds: %s\n", static_cast<int>(plant.size()),
                plant.data(), how, static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(worlds), outcome.violation.c_str());
    return true;
  };
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    if (caught(MakeScenario(seed), "seed")) return worlds;
    if (seed <= kSpSeeds && caught(MakeSpScenario(seed), "SP seed")) {
      return worlds;
    }
    if (seed > kNoExcuseSeeds) continue;
    Scenario scenario = MakeScenario(5 * seed);
    LeaveNoExcuse(&scenario);
    if (caught(std::move(scenario), "the seed without excuse")) return worlds;
  }
  return 0;
}

TEST_P(PlantsTest, IsCaught) { EXPECT_GT(WorldsUntilCaught(GetParam()), 0u); }

INSTANTIATE_TEST_SUITE_P(Bugs, PlantsTest,
                         ::testing::Values("replan_gives_up", "prompt_starved",
                                           "one_sequence_fails_its_batch",
                                           "sampler_index_off_by_one", "penalties_forget",
                                           "block_of_the_wrong_layout"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace skein::sim

int main(int argc, char** argv) {
  return skein::sim::SeedMain(argc, argv, skein::sim::MakeScenario);
}
