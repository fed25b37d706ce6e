#include "scheduler/router/retry_budget.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

int TakeAll(RetryBudget* budget, TimeUs now) {
  int taken = 0;
  while (budget->Take(now)) ++taken;
  return taken;
}

TEST(RetryBudget, BeginsWithOneAttemptForEachRequestThatMayRun) {
  RetryBudget large(500), small(2);
  EXPECT_EQ(TakeAll(&large, 0), 500);
  EXPECT_EQ(TakeAll(&small, 0), RetryBudget::kFloorPerS);
}

TEST(RetryBudget, ALoadMayBeMultipliedByItsShareAndTheFloorOnly) {
  RetryBudget budget(100);
  TakeAll(&budget, 0);
  constexpr int kSeconds = 60, kRequestsPerS = 1000;
  int64_t taken = 0;
  for (int request = 1; request <= kSeconds * kRequestsPerS; ++request) {
    budget.Requested();
    taken += TakeAll(&budget, request * (kSecondUs / kRequestsPerS));
  }
  EXPECT_EQ(taken, kSeconds * (kRequestsPerS / 5 + RetryBudget::kFloorPerS));
}

TEST(RetryBudget, WithoutLoadEachHasItsTurn) {
  constexpr int kRunning = 256;
  RetryBudget budget(kRunning);
  TimeUs now = kSecondUs;
  TakeAll(&budget, now);
  const TimeUs begin = now;
  for (int i = 0; i < kRunning; ++i) {
    ASSERT_FALSE(budget.Take(now));
    const TimeUs next = budget.NextUs();
    ASSERT_GT(next, now);
    ASSERT_FALSE(budget.Take(next - 1)) << "not before the time that it told";
    ASSERT_TRUE(budget.Take(next));
    now = next;
  }
  EXPECT_LE(now - begin, (RetryBudget::kTurnS + 1) * kSecondUs);
}

TEST(RetryBudget, EachAttemptThatWorkedLetsTwoFollow) {
  RetryBudget budget(100);
  TakeAll(&budget, 5);
  budget.Progressed();
  EXPECT_EQ(budget.NextUs(), 5) << "at once";
  EXPECT_EQ(TakeAll(&budget, 5), 2);
}

TEST(RetryBudget, ALongRestAndAClockThatStandsStillAreHarmless) {
  RetryBudget budget(100);
  EXPECT_EQ(TakeAll(&budget, kNever - 1), 100);
  EXPECT_EQ(TakeAll(&budget, 0), 0);
  for (int i = 0; i < 1000; ++i) budget.Progressed();
  EXPECT_EQ(TakeAll(&budget, 0), 100) << "no more than it begins with";
}

}  // namespace
}  // namespace skein::scheduler
