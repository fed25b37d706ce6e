#include "scheduler/base/listening_clock.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

TEST(ListeningClock, GoesAsTimeDoesWhileTicksComeInTime) {
  ListeningClock clock(1600);
  clock.Listened(5000);
  const TimeUs end = clock.At(5040) + 1600;
  EXPECT_EQ(end, clock.elapsed() + 1640);
  TimeUs now = 5000;
  for (int ticks = 0; clock.elapsed() < end; ++ticks) {
    ASSERT_LT(ticks, 20);
    now = clock.NextTick(end);
    clock.Listened(now);
  }
  EXPECT_EQ(now, 5040 + 1600);
}

TEST(ListeningClock, AStandstillCountsForAnEighthOfTheLease) {
  ListeningClock clock(1600);
  clock.Listened(1000);
  const TimeUs before = clock.elapsed();
  EXPECT_EQ(clock.At(1'000'000), before + 200);
  clock.Listened(1'000'000);
  EXPECT_EQ(clock.elapsed(), before + 200);
  EXPECT_EQ(clock.NextTick(before + 1600), 1'000'100);
}

TEST(ListeningClock, NothingToWaitForNeedsNoTick) {
  EXPECT_EQ(ListeningClock(1600).NextTick(kNever), kNever);
}

TEST(ListeningClock, TimeThatGoesBackIsNoTime) {
  ListeningClock clock(1600);
  clock.Listened(1000);
  const TimeUs before = clock.elapsed();
  clock.Listened(900);
  EXPECT_EQ(clock.elapsed(), before);
  EXPECT_EQ(clock.At(950), before);
}

}  // namespace
}  // namespace skein::scheduler
