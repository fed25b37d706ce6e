#include "scheduler/jobs/job_room.h"

#include <gtest/gtest.h>

namespace skein::scheduler::jobs {
namespace {

constexpr ClusterLoad kIdle{.instances = 4, .waiting = 0, .free_kv = 0.9};
constexpr ClusterLoad kBusy{.instances = 4, .waiting = 3, .free_kv = 0.1};

TEST(JobRoom, GivesNothingWithoutInstances) {
  JobRoom room({});
  room.See({}, 0, 0);
  EXPECT_EQ(room.limit(), 0);
  room.See(kIdle, 0, 1);
  EXPECT_EQ(room.limit(), 8);
  room.See({}, 8, 2);
  EXPECT_EQ(room.limit(), 0);
}

TEST(JobRoom, GrowsOnlyWhileItIsUsedAndKvIsFree) {
  JobRoom room({});
  room.See(kIdle, 0, 0);
  room.See(kIdle, 3, 10 * kSecondUs);
  EXPECT_EQ(room.limit(), 8) << "it is not used up";
  ClusterLoad full = kIdle;
  full.free_kv = 0.1;
  room.See(full, 8, 20 * kSecondUs);
  EXPECT_EQ(room.limit(), 8) << "KV blocks are short";
  room.See(kIdle, 8, 30 * kSecondUs);
  EXPECT_EQ(room.limit(), 12);
  room.See(kIdle, 12, 30 * kSecondUs + 1);
  EXPECT_EQ(room.limit(), 12) << "once a second";
}

TEST(JobRoom, StopsGrowingAtItsMaximum) {
  JobRoom room({.limit_max = 50});
  for (int64_t s = 0; s < 100; ++s) room.See(kIdle, room.limit(), s * kSecondUs);
  EXPECT_EQ(room.limit(), 50);
}

TEST(JobRoom, FallsAtOnceWhenRequestsWaitAndComesBackSlowly) {
  JobRoom room({});
  for (int64_t s = 0; s < 20; ++s) room.See(kIdle, room.limit(), s * kSecondUs);
  const int64_t before = room.limit();
  TimeUs now = 20 * kSecondUs;
  room.See(kBusy, before, now);
  EXPECT_EQ(room.limit(), before / 2);
  room.See(kBusy, before, now + 1);
  EXPECT_EQ(room.limit(), before / 2) << "one step a quarter of a second";
  for (int i = 1; i <= 20; ++i) room.See(kBusy, before, now += 250 * kMillisecondUs);
  EXPECT_EQ(room.limit(), 0) << "a lasting burst gets all";
  room.See(kIdle, 0, now + 1);
  EXPECT_EQ(room.limit(), 0);
  room.See(kIdle, 0, now += kSecondUs);
  EXPECT_EQ(room.limit(), 4);
}

TEST(JobRoom, FallsFromWhatIsUsed) {
  JobRoom room({});
  for (int64_t s = 0; s < 20; ++s) room.See(kIdle, room.limit(), s * kSecondUs);
  room.See(kBusy, 10, 20 * kSecondUs);
  EXPECT_EQ(room.limit(), 5);
}

}  // namespace
}  // namespace skein::scheduler::jobs
