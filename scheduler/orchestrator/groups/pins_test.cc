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
  EXPECT_NE(pins_.BoundAs({{5}, {6}}), nullptr);
  EXPECT_EQ(pins_.BoundAs({{3}}), nullptr);
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

TEST_F(PinsTest, SayHowTheyAreBound) {
  pins_.Bind({{3}, {4}}, {OwnSequences::kHardPreempt, ShiftRule{.tokens = 12, .tp = 2}});
  EXPECT_EQ(pins_.BoundAs({{3}, {4}})->own, OwnSequences::kHardPreempt);
  EXPECT_EQ(pins_.BoundAs({{3}, {4}})->shift, (ShiftRule{.tokens = 12, .tp = 2}));
  pins_.Bind({{3}, {4}});
  EXPECT_EQ(pins_.BoundAs({{3}, {4}})->own, OwnSequences::kShare);
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
