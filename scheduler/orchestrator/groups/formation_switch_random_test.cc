// Random binds, releases, deaths, pauses, broken streams and restarts of the orchestrator, over
// many seeds: an epoch is held by all its members or by none, in bounded time, and every call is
// answered (testing/formation_world.h).
#include <gtest/gtest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "scheduler/orchestrator/groups/formation_switch.h"
#include "scheduler/orchestrator/groups/testing/formation_world.h"
#include "scheduler/vocabulary/mix64.h"

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

// Weights are shared, the mode changes and they are given back as ever.
void Shares(FormationWorld& world) {
  const absl::StatusOr<uint64_t> epoch = world.ShareWidest(SharedMode::kWas);
  ASSERT_TRUE(epoch.ok()) << epoch.status();
  world.RunFor(FormationWorld::kLimits.commit_us);
  const size_t members = std::bit_floor(world.workers());
  EXPECT_EQ(world.Sharing(SharedMode::kWas), members);
  for (const SharedMode mode : {SharedMode::kCas, SharedMode::kWas, SharedMode::kCas}) {
    ASSERT_TRUE(world.SetMode(*epoch, mode).ok());
    world.RunFor(FormationWorld::kLimits.ready_us + FormationWorld::kLimits.set_us);
    EXPECT_EQ(world.Sharing(mode), members);
    world.CheckSettled();
  }
  world.ReleaseAll(Switch::kHard);
  world.RunFor(FormationWorld::kLimits.leave_us);
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
    Shares(world);
    for (const std::string& error : world.errors) ADD_FAILURE() << error;
    for (const auto& [what, count] : world.counts) counts[what] += count;
    if (HasFailure()) break;
  }
  for (const auto& [what, count] : counts) RecordProperty(what, std::to_string(count));
  // What the property was tested with.
  for (const char* what : {"binds",
                           "bind done",
                           "bind aborted",
                           "release done",
                           "release forced",
                           "release failed",
                           "unanswered",
                           "refused: FAILED_PRECONDITION",
                           "refused: INVALID_ARGUMENT",
                           "refusals",
                           "forgotten",
                           "deaths",
                           "cuts",
                           "long cuts",
                           "pauses",
                           "restarts",
                           "untold",
                           "own share done",
                           "own sequential done",
                           "own soft done",
                           "own hard done",
                           "own sequential aborted",
                           "own soft aborted",
                           "shares",
                           "share done",
                           "share aborted",
                           "unshare done",
                           "unshare forced",
                           "unshare failed",
                           "shares forgotten",
                           "modes",
                           "modes refused",
                           "mode done",
                           "mode aborted",
                           "mode failed"}) {
    EXPECT_GE(counts[what], 20) << what;
  }
}

// Instances that tell anything, in any order: a fault of a worker breaks no invariant, and nothing
// is awaited from those that have left.
TEST(FormationSwitchRandomTest, WhateverIsToldTheInvariantsHold) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    uint64_t state = seed;
    const auto random = [&](uint64_t below) { return Mix64(state += kMix64Step) % below; };
    FormationEpochs epochs;
    FormationSwitch formations({}, &epochs);
    SwitchEffects effects;
    TimeUs now = 0;
    const auto told = [&] {
      return FormationTold{.epoch = 1 + random(epochs.last() + 2),
                           .phase = static_cast<FormationTold::Phase>(random(3))};
    };
    for (int i = 0; i < 500; ++i) {
      now += static_cast<TimeUs>(random(kSecondUs));
      const InstanceId instance = {1 + random(9)};
      switch (random(10)) {
        case 0: {
          GroupOrder order = {.generation = random(40)};
          for (uint64_t id = 1 + random(3); id < 9; ++id) order.members.push_back({{id}, ""});
          formations.Regrouped(order, now, &effects);
          break;
        }
        case 1: {
          const int32_t size = int32_t{1} << random(4);
          const auto first = static_cast<int32_t>(random(8)) / size * size;
          (void)formations.Bind({first, size}, "", now, &effects,
                                static_cast<OwnSequences>(random(4)));
          break;
        }
        case 2:
          (void)formations.Release(instance, static_cast<Switch>(random(2)), "", now, &effects);
          break;
        case 3:
          if (random(4) == 0) formations.Left(instance, now, &effects);
          break;
        case 4:
          formations.Reconnected(
              instance, random(3) == 0 ? std::nullopt : std::optional<FormationTold>(told()), now,
              &effects);
          break;
        case 5:
          formations.Tick(now, &effects);
          break;
        case 6: {
          const auto mode = static_cast<SharedMode>(random(2));
          const auto first = static_cast<int32_t>(random(4)) * 2;
          (void)formations.Share({first, 2}, mode, "", now, &effects);
          (void)formations.SetMode(1 + random(epochs.last() + 2), mode, "", now, &effects);
          break;
        }
        case 7:
          formations.Take(instance,
                          ModeTold{.epoch = 1 + random(epochs.last() + 2),
                                   .turn = random(4),
                                   .phase = static_cast<ModeTold::Phase>(random(3)),
                                   .why = absl::UnavailableError("no")},
                          now, &effects);
          break;
        default:
          formations.Take(instance, told(), now, &effects);
      }
      ASSERT_TRUE(formations.CheckInvariants().ok()) << formations.CheckInvariants();
    }
    for (uint64_t id = 1; id <= 9; ++id) formations.Left({id}, now, &effects);
    EXPECT_EQ(formations.NextDeadline(), kNever);
    EXPECT_TRUE(formations.live().empty());
  }
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
