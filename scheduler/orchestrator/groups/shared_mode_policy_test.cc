#include "scheduler/orchestrator/groups/shared_mode_policy.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler::orchestrator {
namespace {

constexpr SharedModeConfig kConfig = {.threshold = 64,
                                      .leave_factor = 1.5,
                                      .persists_us = 5 * kSecondUs,
                                      .min_dwell_us = 60 * kSecondUs};

std::vector<int64_t> Each(int64_t batch) { return {batch, batch, batch, batch}; }

TEST(SharedModePolicyTest, TheFirstModeFollowsTheMeanBatch) {
  const SharedModePolicy policy(kConfig);
  EXPECT_EQ(policy.First(Each(64)).mode, SharedMode::kWas);
  EXPECT_EQ(policy.First(Each(64)).why, "a mean batch of 64.0, at least 64");
  EXPECT_EQ(policy.First(Each(63)).mode, SharedMode::kCas);
  EXPECT_EQ(policy.First({200, 0, 0, 0}).mode, SharedMode::kCas) << "who has no work counts as 0";
  EXPECT_EQ(policy.First({}).mode, SharedMode::kCas);
}

TEST(SharedModePolicyTest, WithoutAThresholdTheModeIsWasAndTheReasonSaysSo) {
  SharedModePolicy policy({});
  EXPECT_EQ(policy.First(Each(1)).mode, SharedMode::kWas);
  policy.Began(SharedMode::kWas, 0);
  const auto choice = policy.Look(Each(1), 1'000 * kSecondUs);
  EXPECT_EQ(choice.mode, SharedMode::kWas);
  EXPECT_NE(choice.why.find("does not say from which batch on"), std::string::npos) << choice.why;
  policy.Began(SharedMode::kCas, 0);  // an operator ordered it
  const TimeUs dwell_us = SharedModeConfig().min_dwell_us;
  EXPECT_EQ(policy.Look(Each(1), dwell_us - 1).mode, SharedMode::kCas);
  EXPECT_EQ(policy.Look(Each(1), dwell_us).mode, SharedMode::kWas);
}

TEST(SharedModePolicyTest, ABatchHasToPersist) {
  SharedModePolicy policy(kConfig);
  policy.Began(SharedMode::kWas, 0);
  TimeUs now = 100 * kSecondUs;
  EXPECT_EQ(policy.Look(Each(10), now).mode, SharedMode::kWas);
  EXPECT_EQ(policy.Look(Each(10), now + kConfig.persists_us - 1).mode, SharedMode::kWas);
  EXPECT_EQ(policy.Look(Each(64), now + kConfig.persists_us).mode, SharedMode::kWas)
      << "it begins anew";
  now += kConfig.persists_us + 1;
  EXPECT_EQ(policy.Look(Each(10), now).mode, SharedMode::kWas);
  const auto choice = policy.Look(Each(10), now + kConfig.persists_us);
  EXPECT_EQ(choice.mode, SharedMode::kCas);
  EXPECT_EQ(choice.why, "a mean batch of 10.0, below 64.0 for 5.0 s");
}

TEST(SharedModePolicyTest, HysteresisLiesBetweenTheModes) {
  SharedModePolicy policy(kConfig);
  policy.Began(SharedMode::kCas, 0);
  TimeUs now = 100 * kSecondUs;
  for (const int64_t batch : {0, 63, 64, 95}) {
    EXPECT_EQ(policy.Look(Each(batch), now += 10 * kSecondUs).mode, SharedMode::kCas) << batch;
  }
  policy.Look(Each(96), now += kSecondUs);
  EXPECT_EQ(policy.Look(Each(96), now += kConfig.persists_us).mode, SharedMode::kWas);
  policy.Began(SharedMode::kWas, now);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(policy.Look(Each(64), now += 10 * kSecondUs).mode, SharedMode::kWas);
  }
}

TEST(SharedModePolicyTest, AModeIsKeptForAWhileAlsoAfterAFailedChange) {
  SharedModePolicy policy(kConfig);
  policy.Began(SharedMode::kWas, 0);
  policy.Look(Each(1), 0);
  const auto kept = policy.Look(Each(1), kConfig.min_dwell_us - 1);
  EXPECT_EQ(kept.mode, SharedMode::kWas);
  EXPECT_NE(kept.why.find("was is kept for 60.0 s"), std::string::npos) << kept.why;
  EXPECT_EQ(policy.Look(Each(1), kConfig.min_dwell_us).mode, SharedMode::kCas);
  policy.Began(SharedMode::kWas, kConfig.min_dwell_us);  // a member refused
  policy.Look(Each(1), kConfig.min_dwell_us);
  EXPECT_EQ(policy.Look(Each(1), 2 * kConfig.min_dwell_us - 1).mode, SharedMode::kWas);
  EXPECT_EQ(policy.Look(Each(1), 2 * kConfig.min_dwell_us).mode, SharedMode::kCas);
}

TEST(SharedModePolicyTest, WhatIsImpossibleIsRefusedByName) {
  EXPECT_TRUE(CheckSharedMode({}).ok());
  EXPECT_EQ(CheckSharedMode({.threshold = 0}).message(), "threshold: 0 is below 1");
  EXPECT_EQ(CheckSharedMode({.leave_factor = 0.5}).message(), "leave_factor: 0.5 is below 1");
  EXPECT_EQ(CheckSharedMode({.persists_us = -1}).message(), "persists_us: -1 is below 0");
  EXPECT_EQ(CheckSharedMode({.min_dwell_us = -1}).message(), "min_dwell_us: -1 is below 0");
}

// Whatever the batches are, changes keep their distance, and each has a batch that persisted.
TEST(SharedModePolicyTest, RandomLoadsMakeItNeitherFlapNorMissATail) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    uint64_t state = seed;
    const auto random = [&](uint64_t below) { return Mix64(state += kMix64Step) % below; };
    SharedModePolicy policy(kConfig);
    policy.Began(SharedMode::kWas, 0);
    TimeUs now = 0, changed_us = 0;
    int64_t around = 64;
    for (int i = 0; i < 2'000; ++i) {
      now += static_cast<TimeUs>(random(2 * kSecondUs));
      if (random(50) == 0) around = static_cast<int64_t>(random(160));
      std::vector<int64_t> batches(2 + random(6));
      for (int64_t& batch : batches) batch = around + static_cast<int64_t>(random(40));
      const SharedMode mode = policy.Look(batches, now).mode;
      ASSERT_TRUE(policy.CheckInvariants().ok()) << policy.CheckInvariants();
      if (mode == policy.mode()) continue;
      EXPECT_GE(now - changed_us, kConfig.min_dwell_us);
      changed_us = now;
      policy.Began(mode, now);
    }
    // The tail of a job, and its next bulk.
    for (const auto& [batch, mode] : {std::pair{2, SharedMode::kCas}, {500, SharedMode::kWas}}) {
      const TimeUs most_us = kConfig.min_dwell_us + kConfig.persists_us;
      for (const TimeUs end_us = now + most_us + kSecondUs; now <= end_us; now += kSecondUs) {
        const SharedMode chosen = policy.Look(Each(batch), now).mode;
        if (chosen != policy.mode()) policy.Began(chosen, now);
      }
      EXPECT_EQ(policy.mode(), mode);
    }
  }
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
