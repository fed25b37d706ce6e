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

OpenTransferCalled Grant(uint64_t serial, uint64_t call) {
  return {{call}, {.id = {7, serial}, .epoch = kEpoch}};
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

TEST(Announcements, GrantsWaitForTheirOwnRequestInTheOrderOfTheirComing) {
  Announcements announcements;
  announcements.Hold(Grant(1, 10), 50);
  announcements.Hold(Grant(2, 11), 40);
  announcements.Hold(Grant(1, 12), 60);
  EXPECT_TRUE(announcements.CheckInvariants().ok()) << announcements.CheckInvariants();
  EXPECT_EQ(announcements.NextDeadline(), 40);
  EXPECT_TRUE(announcements.TakeHeld({7, 3}).empty());
  const auto held = announcements.TakeHeld({7, 1});
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(held[0].first.call, CallId{10});
  EXPECT_EQ(held[0].second, 50);
  EXPECT_EQ(held[1].first.call, CallId{12});
  EXPECT_FALSE(announcements.TakeOverdue(39).has_value());
  EXPECT_EQ(announcements.TakeOverdue(40)->call, CallId{11});
  EXPECT_TRUE(announcements.TakeHeld({7, 2}).empty());
  EXPECT_EQ(announcements.NextDeadline(), kNever);
}

}  // namespace
}  // namespace skein::scheduler
