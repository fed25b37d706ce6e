#include "scheduler/worker/decode/block_order.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

RequestId Id(uint64_t serial) { return {7, serial}; }

TEST(BlockOrderTest, TheYoungestOfTheLowestPriorityGivesItsBlocksUp) {
  BlockOrder order;
  order.Add(Id(1), 0, 10);
  order.Add(Id(2), 0, 20);
  order.Add(Id(3), 5, 30);
  order.Add(Id(4), 5, 40);
  EXPECT_EQ(order.VictimFor(Id(3)), Id(2));
  order.Preempt(Id(2));
  EXPECT_EQ(order.VictimFor(Id(3)), Id(1));
  order.Preempt(Id(1));
  EXPECT_EQ(order.VictimFor(Id(3)), Id(4));
  order.Preempt(Id(4));
  EXPECT_EQ(order.VictimFor(Id(3)), std::nullopt) << "nobody is behind it";
  EXPECT_EQ(order.FirstPreempted(), Id(4));
  EXPECT_TRUE(order.CheckInvariants().ok());
}

TEST(BlockOrderTest, NobodyIsPreemptedForOneBehindIt) {
  BlockOrder order;
  order.Add(Id(1), 0, 10);
  order.Add(Id(2), 0, 10);
  EXPECT_EQ(order.VictimFor(Id(2)), std::nullopt);
  EXPECT_EQ(order.VictimFor(Id(1)), Id(2)) << "of one time, that with the larger id";
}

TEST(BlockOrderTest, ThoseThatWantAreServedByTheirPlace) {
  BlockOrder order;
  for (uint64_t serial : {1, 2, 3}) order.Add(Id(serial), 0, static_cast<TimeUs>(serial));
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
