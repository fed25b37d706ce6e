#include "scheduler/worker/kv_in/announcements.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

using testing::Spec;

constexpr Epoch kEpoch{5};

AnnounceRequest Request(uint64_t serial, Incarnation writer, Epoch epoch = kEpoch) {
  return {.spec = Spec(serial), .epoch = epoch, .writers = {writer}};
}

TEST(Announcements, ARepeatedOneNamesFurtherWriters) {
  Announcements announcements;
  announcements.Add(Request(1, {8}), {}, 100);
  announcements.Add(Request(1, {9}), {}, 200);
  const Announcements::Announced* announced = announcements.Find({7, 1});
  ASSERT_NE(announced, nullptr);
  EXPECT_EQ(announced->writers.size(), 2u);
  EXPECT_TRUE(announcements.Has({7, 1}, kEpoch));
  EXPECT_FALSE(announcements.Has({7, 1}, {6}));
  EXPECT_EQ(announcements.NextDeadline(), 200);
  EXPECT_EQ(announcements.Take({7, 1}).epoch, kEpoch);
  EXPECT_EQ(announcements.Find({7, 1}), nullptr);
  EXPECT_EQ(announcements.NextDeadline(), kNever);
}

TEST(Announcements, TheyEndAtTheirTime) {
  Announcements announcements;
  announcements.Add(Request(1, {8}), {}, 100);
  EXPECT_EQ(announcements.TakeOver(99), std::nullopt);
  const RequestId first{7, 1};
  EXPECT_EQ(announcements.TakeOver(100), first);
  announcements.Take(first);
  EXPECT_TRUE(announcements.CheckInvariants().ok()) << announcements.CheckInvariants();
}

}  // namespace
}  // namespace skein::scheduler
