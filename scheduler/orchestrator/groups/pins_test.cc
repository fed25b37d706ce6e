#include "scheduler/orchestrator/groups/pins.h"

#include <gtest/gtest.h>

namespace skein::scheduler::orchestrator {
namespace {

GroupOrder OrderOf(std::vector<uint64_t> ids) {
  GroupOrder order;
  order.generation = 1;
  for (const uint64_t id : ids) order.members.push_back({{id}, "address"});
  return order;
}

class PinsTest : public ::testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(pins_.CheckInvariants().ok()); }
  Pins pins_;
};

TEST_F(PinsTest, ArePartsOfTheOrder) {
  pins_.Bind({{5}, {6}});
  pins_.Alone({{3}});
  EXPECT_EQ(pins_.In(OrderOf({3, 4, 5, 6})), (std::vector<Subset>{{0, 1}, {2, 2}}));
  EXPECT_TRUE(pins_.Has({6}));
  EXPECT_TRUE(pins_.HasBound({{5}, {6}}));
  EXPECT_FALSE(pins_.HasBound({{3}}));
  EXPECT_FALSE(pins_.Has({4}));
}

TEST_F(PinsTest, ALaterPinTakesThePlaceOfAllThatItOverlaps) {
  pins_.Bind({{3}, {4}});
  pins_.Bind({{5}, {6}});
  pins_.Bind({{3}, {4}, {5}, {6}});
  EXPECT_EQ(pins_.In(OrderOf({3, 4, 5, 6})), (std::vector<Subset>{{0, 4}}));
  pins_.Alone({{4}});
  EXPECT_EQ(pins_.In(OrderOf({3, 4, 5, 6})), (std::vector<Subset>{{1, 1}}));
}

TEST_F(PinsTest, WhoeverLeavesTakesItsPinAlong) {
  pins_.Bind({{3}, {4}});
  pins_.Alone({{5}, {6}});
  pins_.Left({4});
  pins_.Left({5});
  EXPECT_EQ(pins_.In(OrderOf({3, 6})), (std::vector<Subset>{{1, 1}}));
  pins_.Unpin({{6}});
  EXPECT_TRUE(pins_.empty());
}

TEST_F(PinsTest, WhatHasNoPlaceInTheOrderIsLeftOut) {
  pins_.Bind({{3}, {4}});
  pins_.Alone({{9}});
  EXPECT_TRUE(pins_.In(OrderOf({5, 6})).empty());
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
