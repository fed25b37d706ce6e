// Random binds, releases, deaths, pauses, broken streams and restarts of the orchestrator, over
// many seeds: an epoch is held by all its members or by none, in bounded time, and every call is
// answered (testing/formation_world.h).
#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "scheduler/orchestrator/groups/testing/formation_world.h"

namespace skein::scheduler::orchestrator {
namespace {

constexpr uint64_t kSeeds = 4000;

// The world after its faults: what was begun has ended, and binds and releases work as ever.
void Recovers(FormationWorld& world) {
  world.Heal();
  world.CheckSettled();
  world.ReleaseAll(Switch::kSequential);
  world.RunFor(FormationWorld::kLimits.release_us);
  world.CheckSettled();
  EXPECT_EQ(world.bound(), 0u);
  ASSERT_TRUE(world.BindWidest().ok());
  world.RunFor(FormationWorld::kLimits.commit_us);
  EXPECT_EQ(world.bound(), std::bit_floor(world.workers()));
  EXPECT_EQ(world.last_ended()->outcome, SwitchOutcome::kDone) << world.last_ended()->reason;
  world.CheckSettled();
  world.ReleaseAll(Switch::kHard);
  world.RunFor(FormationWorld::kLimits.end_us);
  EXPECT_EQ(world.bound(), 0u);
  EXPECT_EQ(world.last_ended()->outcome, SwitchOutcome::kDone) << world.last_ended()->reason;
  world.CheckSettled();
}

TEST(FormationSwitchRandomTest, EveryEpochIsHeldByAllOrByNone) {
  std::map<std::string, int64_t> counts;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    FormationWorld world(seed, 2 + seed % 7);
    world.RunWithFaults(30 * kSecondUs);
    Recovers(world);
    for (const std::string& error : world.errors) ADD_FAILURE() << error;
    for (const auto& [what, count] : world.counts) counts[what] += count;
    if (HasFailure()) break;
  }
  for (const auto& [what, count] : counts) RecordProperty(what, std::to_string(count));
  // What the property was tested with.
  for (const char* what :
       {"binds", "bind done", "bind aborted", "release done", "release forced", "release failed",
        "unanswered", "refused: FAILED_PRECONDITION", "refused: INVALID_ARGUMENT", "refusals",
        "forgotten", "deaths", "cuts", "long cuts", "pauses", "restarts"}) {
    EXPECT_GE(counts[what], 20) << what;
  }
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
