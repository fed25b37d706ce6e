#include "scheduler/worker/decode/block_order.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

RequestId Id(uint64_t serial) { return {7, serial}; }
FairOwner Of(int32_t priority, const char* tenant = "", int64_t weight = 1) {
  return {tenant, weight, priority};
}
constexpr auto kOneEach = [](RequestId) { return int64_t{1}; };

TEST(BlockOrderTest, TheYoungestOfTheLowestPriorityGivesItsBlocksUp) {
  BlockOrder order;
  order.Add(Id(1), Of(0), 10);
  order.Add(Id(2), Of(0), 20);
  order.Add(Id(3), Of(5), 30);
  order.Add(Id(4), Of(5), 40);
  EXPECT_EQ(order.VictimFor(Id(3), kOneEach), Id(2));
  order.Preempt(Id(2));
  EXPECT_EQ(order.VictimFor(Id(3), kOneEach), Id(1));
  order.Preempt(Id(1));
  EXPECT_EQ(order.VictimFor(Id(3), kOneEach), Id(4));
  order.Preempt(Id(4));
  EXPECT_EQ(order.VictimFor(Id(3), kOneEach), std::nullopt) << "nobody is behind it";
  EXPECT_EQ(order.FirstPreempted(), Id(4));
  EXPECT_TRUE(order.CheckInvariants().ok());
}

TEST(BlockOrderTest, NobodyIsPreemptedForOneBehindIt) {
  BlockOrder order;
  order.Add(Id(1), Of(0), 10);
  order.Add(Id(2), Of(0), 10);
  EXPECT_EQ(order.VictimFor(Id(2), kOneEach), std::nullopt);
  EXPECT_EQ(order.VictimFor(Id(1), kOneEach), Id(2)) << "of one time, that with the larger id";
}

TEST(BlockOrderTest, OfOnePriorityTheTenantThatHoldsMostByWeightGivesFirst) {
  BlockOrder order;
  order.Add(Id(1), Of(0, "quiet"), 10);
  for (const uint64_t serial : {2, 3, 4}) order.Add(Id(serial), Of(0, "burst"), 20);
  order.Add(Id(5), Of(0, "quiet"), 30);
  EXPECT_EQ(order.VictimFor(Id(1), kOneEach), Id(4)) << "not the last one, which is of the other";
  EXPECT_EQ(order.VictimFor(Id(4), kOneEach), Id(5)) << "none of its own is behind it";
  EXPECT_EQ(order.VictimOfAll(kOneEach), Id(4));
  const auto blocks = [](RequestId id) { return id == Id(5) ? int64_t{9} : int64_t{2}; };
  EXPECT_EQ(order.VictimFor(Id(1), blocks), Id(5)) << "blocks count, not sequences";
  order.Preempt(Id(4));
  order.Preempt(Id(3));
  EXPECT_EQ(order.VictimFor(Id(1), kOneEach), Id(5)) << "what it runs counts";
  EXPECT_TRUE(order.CheckInvariants().ok());
}

TEST(BlockOrderTest, WhereOneMustGiveItsBlocksUpTheFirstIsTheLastToDoSo) {
  BlockOrder order;
  order.Add(Id(1), Of(0, "large"), 10);
  for (const uint64_t serial : {2, 3}) order.Add(Id(serial), Of(0, "small"), 20);
  const auto blocks = [](RequestId id) { return id == Id(1) ? int64_t{9} : int64_t{1}; };
  for (const uint64_t serial : {3, 2, 1}) {
    EXPECT_EQ(order.VictimOfAll(blocks), Id(serial));
    order.Preempt(Id(serial));
  }
  EXPECT_EQ(order.VictimOfAll(blocks), std::nullopt);
}

TEST(BlockOrderTest, AWeightLetsATenantHoldMoreAndALowerPriorityGivesFirst) {
  BlockOrder order;
  for (const uint64_t serial : {1, 2, 3}) order.Add(Id(serial), Of(0, "heavy", 4), 10);
  for (const uint64_t serial : {4, 5}) order.Add(Id(serial), Of(0, "light"), 20);
  order.Add(Id(6), Of(0, "heavy", 4), 30);
  EXPECT_EQ(order.VictimFor(Id(1), kOneEach), Id(5));
  order.Add(Id(7), Of(-1, "quiet"), 5);
  EXPECT_EQ(order.VictimFor(Id(1), kOneEach), Id(7));
  EXPECT_TRUE(order.CheckInvariants().ok());
}

TEST(BlockOrderTest, ThoseThatWantAreServedByTheirPlace) {
  BlockOrder order;
  for (uint64_t serial : {1, 2, 3}) order.Add(Id(serial), Of(0), static_cast<TimeUs>(serial));
  EXPECT_EQ(order.FirstWanting(), std::nullopt);
  order.Want(Id(3));
  order.Want(Id(2));
  EXPECT_EQ(order.FirstWanting(), Id(2));
  order.Preempt(Id(3));
  order.Satisfy(Id(2));
  EXPECT_EQ(order.FirstWanting(), std::nullopt) << "a preempted one wants nothing";
  order.Resume(Id(3));
  EXPECT_EQ(order.FirstPreempted(), std::nullopt);
  EXPECT_EQ(order.running(), 3u);
  order.Remove(Id(2));
  order.Remove(Id(2));
  EXPECT_EQ(order.running(), 2u);
  EXPECT_TRUE(order.CheckInvariants().ok());
}

}  // namespace
}  // namespace skein::scheduler
