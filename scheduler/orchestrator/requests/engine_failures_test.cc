#include "scheduler/orchestrator/requests/engine_failures.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace skein::scheduler::orchestrator {
namespace {

constexpr InstanceId kOne{11}, kTwo{12}, kThree{13};
constexpr Incarnation kProcessOne{101}, kProcessTwo{102}, kProcessThree{103};

bool Names(const EngineFailures& failures, const char* engines) {
  return absl::StrContains(failures.Verdict().message(), absl::StrCat("(", engines, ")"));
}

TEST(EngineFailures, EachEngineCountsOnce) {
  EngineFailures failures;
  EXPECT_EQ(failures.failed_or_lost(), 0);
  EXPECT_TRUE(failures.Fail(kProcessOne, kOne));
  EXPECT_FALSE(failures.Fail(kProcessOne, kOne)) << "duplicate";
  EXPECT_FALSE(failures.Fail(kProcessOne, kThree)) << "the process has registered anew";
  failures.Lose(kProcessOne, kThree);
  EXPECT_EQ(failures.failed_or_lost(), 1);
  failures.Lose(kProcessTwo, kTwo);
  EXPECT_EQ(failures.failed(), FailedEngines{kProcessOne});
  EXPECT_EQ(failures.failed_or_lost(), 2);
}

TEST(EngineFailures, TwoThatSaySoCondemnARequest) {
  EngineFailures failures;
  failures.Fail(kProcessOne, kOne);
  EXPECT_TRUE(failures.Verdict().ok());
  failures.Fail(kProcessTwo, kTwo);
  EXPECT_TRUE(absl::IsInternal(failures.Verdict())) << failures.Verdict();
  EXPECT_TRUE(Names(failures, "instances 11, 12")) << failures.Verdict();
}

TEST(EngineFailures, AProcessThatEndedWithoutAWordIsHalfAProof) {
  EngineFailures lost;
  lost.Lose(kProcessOne, kOne);
  lost.Lose(kProcessTwo, kTwo);
  EXPECT_TRUE(lost.Verdict().ok()) << "they may have been killed";
  EngineFailures mixed = lost;
  lost.Lose(kProcessThree, kThree);
  EXPECT_TRUE(absl::IsUnavailable(lost.Verdict())) << lost.Verdict();
  mixed.Fail(kProcessThree, kThree);
  EXPECT_TRUE(absl::IsUnavailable(mixed.Verdict())) << mixed.Verdict();
  EXPECT_TRUE(Names(mixed, "instances 11, 12, 13")) << mixed.Verdict();
}

TEST(EngineFailures, WhatTheRouterWasToldCounts) {
  EngineFailures failures({kProcessOne});
  EXPECT_EQ(failures.failed(), FailedEngines{kProcessOne});
  EXPECT_TRUE(failures.Fail(kProcessTwo, kTwo));
  EXPECT_TRUE(Names(failures, "instances 12, and 1 under another orchestrator"));
}

// The orchestrator before told the router and died before the worker had its answer.
TEST(EngineFailures, WhatTheRouterWasToldAndTheWorkerReportsAgainCountsOnce) {
  EngineFailures failures({kProcessOne});
  EXPECT_FALSE(failures.Fail(kProcessOne, kOne));
  EXPECT_TRUE(failures.Verdict().ok());
}

TEST(EarlyFailures, AreKeptUntilTheRequestIsKnown) {
  EarlyFailures early;
  early.Add({7, 1}, kProcessOne, kOne);
  early.Add({7, 1}, kProcessTwo, kTwo);
  early.Add({7, 2}, kProcessOne, kOne);
  EXPECT_EQ(early.Take({7, 1}), (EarlyFailures::Engines{{kProcessOne, kOne}, {kProcessTwo, kTwo}}));
  EXPECT_TRUE(early.Take({7, 1}).empty());
  EXPECT_EQ(early.size(), 1u);
}

TEST(EarlyFailures, TheOldestGoFirst) {
  EarlyFailures early;
  for (uint64_t serial = 1; serial <= EarlyFailures::kMax + 1; ++serial) {
    early.Add({7, serial}, kProcessOne, kOne);
  }
  EXPECT_EQ(early.size(), EarlyFailures::kMax);
  EXPECT_TRUE(early.CheckInvariants().ok()) << early.CheckInvariants();
  EXPECT_TRUE(early.Take({7, 1}).empty());
  EXPECT_FALSE(early.Take({7, 2}).empty());
}

TEST(EarlyFailures, OneThatWasTakenPushesNoOtherOut) {
  EarlyFailures early;
  early.Add({7, 1}, kProcessOne, kOne);
  early.Add({7, 2}, kProcessOne, kOne);
  early.Take({7, 1});
  early.Add({7, 1}, kProcessTwo, kTwo);
  for (uint64_t serial = 3; serial <= EarlyFailures::kMax; ++serial) {
    early.Add({7, serial}, kProcessOne, kOne);
  }
  EXPECT_EQ(early.size(), EarlyFailures::kMax);
  EXPECT_TRUE(early.CheckInvariants().ok()) << early.CheckInvariants();
  EXPECT_EQ(early.Take({7, 1}), (EarlyFailures::Engines{{kProcessTwo, kTwo}}));
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
