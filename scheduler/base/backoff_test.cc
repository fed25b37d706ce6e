#include "scheduler/base/backoff.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

TEST(BackoffTest, PausesDoubleUpToTheLimitAndBeginAnewAfterASuccess) {
  Backoff backoff(50, 500);
  for (const TimeUs pause : {50, 100, 200, 400, 500, 500}) EXPECT_EQ(backoff.Failed(), pause);
  EXPECT_EQ(backoff.failures(), 6);
  backoff.Succeeded();
  EXPECT_EQ(backoff.failures(), 0);
  EXPECT_EQ(backoff.Failed(), 50);
}

TEST(BackoffTest, NoNumberOfFailuresOverflows) {
  Backoff backoff(kSecondUs, 100 * kSecondUs);
  for (int i = 0; i < 1000; ++i) EXPECT_LE(backoff.Failed(), 100 * kSecondUs);
  EXPECT_EQ(backoff.Failed(), 100 * kSecondUs);
}

}  // namespace
}  // namespace skein::scheduler
