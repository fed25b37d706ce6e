#include "scheduler/election/election_core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "scheduler/election/testing/election_world.h"

namespace skein::scheduler {
namespace {

constexpr TimeUs kLease = kSecondUs;
constexpr TimeUs kMs = kMillisecondUs;
// A grant, a claim and the news before them, each there and back within 2 ms each way, and pauses
// after claims that others won.
constexpr TimeUs kCampaign = 200 * kMs;

TEST(ElectionCore, OneOfThreeLeadsAndTheOthersFollow) {
  ElectionWorld world({.candidates = 3});
  ASSERT_TRUE(world.RunUntilLed(kCampaign, 1));
  world.RunFor(60 * kSecondUs);
  EXPECT_EQ(world.reigns().size(), 1u);
  EXPECT_EQ(world.reigns()[0].generation, 1u);
  EXPECT_EQ(world.Leader(), world.reigns()[0].candidate);
  EXPECT_EQ(world.broken(), "");
}

TEST(ElectionCore, AKilledLeaderIsFollowedWithinItsLease) {
  ElectionWorld world({.candidates = 2});
  ASSERT_TRUE(world.RunUntilLed(kCampaign, 1));
  for (size_t reign = 2; reign < 30; ++reign) {
    world.RunFor(world.Upto(3 * kLease));
    const int leader = world.Leader();
    ASSERT_GE(leader, 0);
    world.Kill(leader);
    ASSERT_TRUE(world.RunUntilLed(kLease + kCampaign, reign));
    EXPECT_EQ(world.reigns().back().generation, reign);
    EXPECT_NE(world.Leader(), leader);
    world.Restart(leader);
  }
  EXPECT_EQ(world.broken(), "");
}

TEST(ElectionCore, AResignedLeaderIsFollowedAtOnceAndCampaignsNoMore) {
  ElectionWorld world({.candidates = 3});
  ASSERT_TRUE(world.RunUntilLed(kCampaign, 1));
  const int first = world.Leader();
  world.RunFor(kLease + kLease / 10);
  world.Resign(first);
  EXPECT_NE(world.Leader(), first);  // before anything was sent
  ASSERT_TRUE(world.reigns()[0].lost.has_value());
  EXPECT_TRUE(world.reigns()[0].lost->ok());
  ASSERT_TRUE(world.RunUntilLed(kCampaign, 2));
  EXPECT_TRUE(world.core(first).Ended());
  EXPECT_TRUE(world.core(first).gave_up());
  for (int i = 0; i < 3; ++i) {
    if (i != first) world.Kill(i);
  }
  world.RunFor(10 * kLease);
  EXPECT_EQ(world.reigns().size(), 2u);
  EXPECT_EQ(world.broken(), "");
}

TEST(ElectionCore, ALeaderThatStepsAsideIsFollowedAtOnceByAnother) {
  ElectionWorld world({.candidates = 3});
  ASSERT_TRUE(world.RunUntilLed(kCampaign, 1));
  const int first = world.Leader();
  world.StepAside(first);
  EXPECT_NE(world.Leader(), first);  // before anything was sent
  ASSERT_TRUE(world.reigns()[0].lost.has_value());
  EXPECT_EQ(world.reigns()[0].lost->code(), absl::StatusCode::kCancelled);
  ASSERT_TRUE(world.RunUntilLed(kCampaign, 2));
  const int second = world.Leader();
  EXPECT_NE(second, first);
  EXPECT_EQ(world.reigns()[1].generation, 2u);
  // It leaves it to the third, and claims again after it has heard somebody.
  world.Kill(second);
  ASSERT_TRUE(world.RunUntilLed(kLease + kCampaign, 3));
  EXPECT_EQ(world.Leader(), 3 - first - second);
  world.Kill(world.Leader());
  world.Hear(first);
  ASSERT_TRUE(world.RunUntilLed(kLease + kCampaign, 4));
  EXPECT_EQ(world.Leader(), first);
  EXPECT_EQ(world.broken(), "");
}

TEST(ElectionCore, OneThatStepsAsideLeadsAgainWhenNoOtherDoes) {
  ElectionWorld world({.candidates = 1});
  ASSERT_TRUE(world.RunUntilLed(kCampaign, 1));
  world.RunFor(kLease / 3);
  world.StepAside(0);
  world.RunFor(2 * kLease - kMs);
  EXPECT_EQ(world.reigns().size(), 1u) << "others have the time to claim";
  EXPECT_TRUE(world.RunUntilLed(kCampaign, 2));
  world.RunFor(64 * kLease);
  world.StepAside(0);
  world.Hear(0);
  EXPECT_TRUE(world.RunUntilLed(kCampaign, 3)) << "at once";
  EXPECT_EQ(world.broken(), "");
}

// Whoever leads is deaf, and hears somebody as soon as it does not lead.
TEST(ElectionCore, HowOftenOneStepsAsideIsBounded) {
  ElectionWorld world({.candidates = 2});
  const TimeUs begin = world.now();
  while (world.now() < begin + 600 * kLease) {
    const int leader = world.Leader();
    if (leader >= 0) world.StepAside(leader);
    for (int i = 0; i < 2; ++i) {
      if (i != world.Leader()) world.Hear(i);
    }
    world.RunFor(kLease / 4);
  }
  // Each after 4, 8, 16, 32 and 64 leases, and then after each 64.
  EXPECT_GT(world.reigns().size(), 10u);
  EXPECT_LT(world.reigns().size(), 2 * (6 + 600 / 64) + 4);
  EXPECT_EQ(world.broken(), "");
}

TEST(ElectionCore, AStoppedLeaderHasLostByItsOwnClockWhenItGoesOn) {
  ElectionWorld world({.candidates = 2});
  ASSERT_TRUE(world.RunUntilLed(kCampaign, 1));
  world.RunFor(kLease);
  const int first = world.Leader();
  world.Stop(first, 3 * kLease);
  ASSERT_TRUE(world.RunUntilLed(kLease + kCampaign, 2));
  world.RunFor(3 * kLease);
  EXPECT_NE(world.Leader(), first);
  ASSERT_TRUE(world.reigns()[0].lost.has_value());
  EXPECT_EQ(world.reigns()[0].lost->code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(world.reigns().size(), 2u);
  EXPECT_EQ(world.broken(), "");
}

TEST(ElectionCore, AStopWithinTheLeaseCostsNothing) {
  ElectionWorld world({.candidates = 2});
  ASSERT_TRUE(world.RunUntilLed(kCampaign, 1));
  const int first = world.Leader();
  for (int i = 0; i < 20; ++i) {
    world.RunFor(world.Upto(kLease));
    world.Stop(first, kLease / 2);  // a quarter since the renewal, a half, and a margin of a tenth
    world.RunFor(kLease);
  }
  EXPECT_EQ(world.reigns().size(), 1u);
  EXPECT_EQ(world.Leader(), first);
}

TEST(ElectionCore, ALeaderWithoutTheStoreStepsDownAndLeadsAnewWhenItIsBack) {
  ElectionWorld world({.candidates = 2});
  ASSERT_TRUE(world.RunUntilLed(kCampaign, 1));
  world.RunFor(kLease);
  world.CutStore(30 * kLease);
  world.RunFor(2 * kLease);
  EXPECT_EQ(world.Leader(), -1);
  ASSERT_TRUE(world.reigns()[0].lost.has_value());
  // Nothing says that another one leads.
  EXPECT_EQ(world.reigns()[0].lost->code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(world.RunUntilLed(30 * kLease, 2));
  EXPECT_GT(world.reigns()[1].generation, 1u);
  EXPECT_EQ(world.broken(), "");
}

TEST(ElectionCore, AShortLossOfTheStoreCostsNothing) {
  ElectionWorld world({.candidates = 2});
  ASSERT_TRUE(world.RunUntilLed(kCampaign, 1));
  for (int i = 0; i < 20; ++i) {
    world.RunFor(kLease + world.Upto(kLease));
    world.CutStore(kLease / 4);
    world.RunFor(kLease);
  }
  EXPECT_EQ(world.reigns().size(), 1u);
}

TEST(ElectionCore, AClaimWithoutAnAnswerIsGivenUpAndItsGenerationNeverUsed) {
  ElectionWorld world({.candidates = 1});
  while (world.stored_generation() == 0) {
    ASSERT_LT(world.now(), kCampaign);
    world.RunFor(10);
    // The answer to the grant is not lost: the first one that is, is the claim's.
    if (world.core(0).generation() == 1) world.LoseNextAnswer();
  }
  EXPECT_EQ(world.Leader(), -1);
  ASSERT_TRUE(world.RunUntilLed(2 * kLease, 1));
  EXPECT_EQ(world.reigns()[0].generation, 2u);
  EXPECT_EQ(world.broken(), "");
}

TEST(ElectionCore, ARaisedGenerationIsStoredAndTheNextLeaderIsAboveIt) {
  ElectionWorld world({.candidates = 2});
  ASSERT_TRUE(world.RunUntilLed(kCampaign, 1));
  const int first = world.Leader();
  world.Raise(first, 7);
  world.Raise(first, 40);
  world.Raise(first, 12);
  world.RunFor(kCampaign);
  EXPECT_EQ(world.stored_generation(), 40u);
  EXPECT_EQ(world.Leader(), first);
  world.Raise(first, 40);
  world.RunFor(kLease);
  world.Kill(first);
  ASSERT_TRUE(world.RunUntilLed(kLease + kCampaign, 2));
  EXPECT_EQ(world.reigns()[1].generation, 41u);
}

TEST(ElectionCore, ARaiseWithoutAnAnswerIsTriedAgain) {
  ElectionWorld world({.candidates = 1});
  ASSERT_TRUE(world.RunUntilLed(kCampaign, 1));
  world.Raise(0, 5);
  world.LoseNextAnswer();
  world.RunFor(2 * kLease);
  world.Raise(0, 6);
  world.RunFor(2 * kLease);
  EXPECT_EQ(world.stored_generation(), 6u);
  EXPECT_EQ(world.reigns().size(), 1u);
}

TEST(ElectionCore, NeverCampaignsWhereGenerationsEnd) {
  ElectionCore core(kLease);
  const auto effects = core.Handle(
      ElectionEvent::Seen{
          {.revision = 3, .generation_revision = 2, .generation = (uint64_t{1} << 23) - 2}},
      10);
  EXPECT_TRUE(effects.empty());
  EXPECT_EQ(core.NextDeadline(), kNever);
}

// One fault after the other on whoever is hit, at random times.
void Disturb(ElectionWorld* world, int candidates) {
  const int victim = static_cast<int>(world->Upto(candidates - 1));
  switch (world->Upto(7)) {
    case 0:
      world->Kill(victim);
      break;
    case 1:
      world->Stop(victim, world->Upto(3 * kLease));
      break;
    case 2:
      world->CutStore(world->Upto(2 * kLease));
      break;
    case 3:
      world->Lose(world->Chance() * 0.6);
      break;
    case 4:
      if (world->Lives(victim)) world->Resign(victim);
      break;
    case 5:
      if (world->Lives(victim)) world->Raise(victim, world->stored_generation() + world->Upto(3));
      break;
    case 6:
      if (world->Lives(victim)) world->StepAside(victim);
      break;
    default:
      world->LoseNextAnswer();
      break;
  }
}

TEST(ElectionCore, NeverTwoLeadersAndAlwaysOneSoonAfterTheFaultsEnd) {
  size_t reigns = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const int candidates = 2 + static_cast<int>(seed % 2);
    ElectionWorld world({.candidates = candidates,
                         .delay_max_us = seed % 3 == 0 ? 150 * kMs : 5 * kMs,
                         .clock_spread = 0.02,
                         .seed = seed});
    for (int fault = 0; fault < 60; ++fault) {
      world.RunFor(world.Upto(2 * kLease));
      Disturb(&world, candidates);
      for (int i = 0; i < candidates; ++i) {
        if (world.Chance() < 0.3 && (!world.Lives(i) || world.core(i).Ended())) world.Restart(i);
      }
    }
    world.Lose(0);
    world.CutStore(0);
    for (int i = 0; i < candidates; ++i) {
      world.Stop(i, 0);
      if (!world.Lives(i) || world.core(i).Ended()) world.Restart(i);
    }
    const TimeUs healed = world.now();
    while (world.Leader() < 0 && world.now() < healed + 6 * kLease) world.RunFor(kMs);
    EXPECT_GE(world.Leader(), 0);
    EXPECT_EQ(world.broken(), "");
    reigns += world.reigns().size();
  }
  EXPECT_GT(reigns, 2000u);  // the faults met leaders
}

}  // namespace
}  // namespace skein::scheduler
