#include "scheduler/orchestrator/requests/engine_failures.h"

#include <gtest/gtest.h>

namespace skein::scheduler::orchestrator {
namespace {

constexpr InstanceId kOne{11}, kTwo{12};

TEST(EngineFailures, EachInstanceCountsOnce) {
  EngineFailures failures;
  EXPECT_EQ(failures.failed_or_lost(), 0);
  EXPECT_TRUE(failures.Fail(kOne));
  EXPECT_FALSE(failures.Fail(kOne)) << "reported once more";
  failures.Lose(kOne);
  EXPECT_EQ(failures.failed_or_lost(), 1);
  failures.Lose(kTwo);
  EXPECT_EQ(failures.failed(), 1);
  EXPECT_EQ(failures.failed_or_lost(), 2);
  EXPECT_EQ(failures.ToString(), "instances 11, 12");
}

TEST(EngineFailures, WhatTheRouterWasToldCounts) {
  EngineFailures failures(1);
  EXPECT_EQ(failures.failed(), 1);
  EXPECT_EQ(failures.ToString(), "1 under another orchestrator");
  EXPECT_TRUE(failures.Fail(kTwo));
  EXPECT_EQ(failures.failed(), 2);
  EXPECT_EQ(failures.ToString(), "instances 12, and 1 under another orchestrator");
}

TEST(EarlyFailures, AreKeptUntilTheRequestIsKnown) {
  EarlyFailures early;
  early.Add({7, 1}, kOne);
  early.Add({7, 1}, kTwo);
  early.Add({7, 2}, kOne);
  EXPECT_EQ(early.Take({7, 1}), (EngineFailures::Instances{kOne, kTwo}));
  EXPECT_TRUE(early.Take({7, 1}).empty());
  EXPECT_EQ(early.size(), 1u);
}

TEST(EarlyFailures, TheOldestGoFirst) {
  EarlyFailures early;
  for (uint64_t serial = 1; serial <= EarlyFailures::kMax + 1; ++serial) {
    early.Add({7, serial}, kOne);
  }
  EXPECT_EQ(early.size(), EarlyFailures::kMax);
  EXPECT_TRUE(early.Take({7, 1}).empty());
  EXPECT_FALSE(early.Take({7, 2}).empty());
}

TEST(EarlyFailures, OneThatWasTakenPushesNoOtherOut) {
  EarlyFailures early;
  early.Add({7, 1}, kOne);
  early.Add({7, 2}, kOne);
  early.Take({7, 1});
  early.Add({7, 1}, kTwo);
  for (uint64_t serial = 3; serial <= EarlyFailures::kMax; ++serial) {
    early.Add({7, serial}, kOne);
  }
  EXPECT_EQ(early.size(), EarlyFailures::kMax);
  EXPECT_EQ(early.Take({7, 1}), (EngineFailures::Instances{kTwo}));
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
