#include "scheduler/base/timer_queue.h"

#include <gtest/gtest.h>

#include <random>

namespace skein::scheduler {
namespace {

TEST(TimerQueue, GivesWhatIsDueByTimeAndThenByKey) {
  TimerQueue<int> timers;
  EXPECT_EQ(timers.Next(), kNever);
  EXPECT_FALSE(timers.TakeDue(kNever - 1).has_value());
  timers.Set(3, 20);
  timers.Set(2, 10);
  timers.Set(1, 20);
  EXPECT_EQ(timers.Next(), 10);
  EXPECT_FALSE(timers.TakeDue(9).has_value());
  EXPECT_EQ(timers.TakeDue(10), 2);
  EXPECT_EQ(timers.TakeDue(25), 1);
  EXPECT_EQ(timers.TakeDue(25), 3);
  EXPECT_FALSE(timers.TakeDue(25).has_value());
}

TEST(TimerQueue, AKeyHasOneTime) {
  TimerQueue<int> timers;
  timers.Set(1, 10);
  timers.Set(1, 30);
  EXPECT_EQ(timers.Of(1), 30);
  EXPECT_FALSE(timers.TakeDue(29).has_value());
  timers.Set(1, 5);
  EXPECT_EQ(timers.Next(), 5);
  timers.Set(1, kNever);
  EXPECT_EQ(timers.Next(), kNever);
  EXPECT_EQ(timers.Of(1), kNever);
  timers.Set(1, 7);
  timers.Remove(1);
  timers.Remove(1);
  EXPECT_EQ(timers.Next(), kNever);
}

TEST(TimerQueue, RandomUseAgreesWithALookAtAll) {
  TimerQueue<int> timers;
  std::map<int, TimeUs> all;
  std::mt19937_64 random(1);
  for (int i = 0; i < 20000; ++i) {
    const int key = static_cast<int>(random() % 50);
    const auto at = static_cast<TimeUs>(random() % 1000);
    if (random() % 3 != 0) {
      timers.Set(key, at);
      all[key] = at;
      continue;
    }
    std::optional<int> first;
    for (const auto& [other, time] : all) {
      if (time <= at && (!first.has_value() || time < all.at(*first))) first = other;
    }
    ASSERT_EQ(timers.TakeDue(at), first);
    if (first.has_value()) all.erase(*first);
  }
}

}  // namespace
}  // namespace skein::scheduler
