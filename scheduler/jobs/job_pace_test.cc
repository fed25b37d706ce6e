#include "scheduler/jobs/job_pace.h"

#include <gtest/gtest.h>

namespace skein::scheduler::jobs {
namespace {

TEST(JobPace, KnowsNothingBeforeTheFirstLine) {
  JobPace pace;
  EXPECT_EQ(pace.TokensPerSecond(kSecondUs), 0);
  EXPECT_LT(pace.SecondsFor(100, kSecondUs), 0);
  pace.Begin(kSecondUs);
  EXPECT_LT(pace.SecondsFor(100, 2 * kSecondUs), 0);
}

TEST(JobPace, CountsTheLastMinuteOnly) {
  JobPace pace;
  pace.Begin(0);
  for (int64_t s = 1; s <= 600; ++s) pace.Count(10, 10, s * kSecondUs);
  EXPECT_NEAR(pace.TokensPerSecond(600 * kSecondUs), 10, 0.5);
  EXPECT_NEAR(pace.TokensPerSecond(630 * kSecondUs), 5, 1);
  EXPECT_EQ(pace.TokensPerSecond(700 * kSecondUs), 0);
}

TEST(JobPace, CorrectsEstimatesByWhatWasAnswered) {
  JobPace pace;
  pace.Begin(0);
  // Lines have half of the tokens that were estimated.
  for (int64_t s = 1; s <= 20; ++s) pace.Count(100, 200, s * kSecondUs);
  EXPECT_NEAR(pace.SecondsFor(2000, 20 * kSecondUs), 10, 0.1);
}

}  // namespace
}  // namespace skein::scheduler::jobs
