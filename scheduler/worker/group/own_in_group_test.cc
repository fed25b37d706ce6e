#include "scheduler/worker/group/own_in_group.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

constexpr TimeUs kPauseUs = 50;

TEST(OwnInGroupTest, OnlyAHardBindPausesOwnSequencesAndNotForLong) {
  for (const auto how : {OwnSequences::kShare, OwnSequences::kSequential,
                         OwnSequences::kSoftPreempt, OwnSequences::kHardPreempt}) {
    SCOPED_TRACE(ToString(how));
    OwnInGroup own(kPauseUs);
    own.Bind({.own = how}, /*now=*/100);
    EXPECT_EQ(own.Pauses(149), how == OwnSequences::kHardPreempt);
    EXPECT_FALSE(own.Pauses(150));
    own.Bind({.own = how, .own_pause_us = 7}, /*now=*/200);
    EXPECT_EQ(own.Pauses(206), how == OwnSequences::kHardPreempt) << "as the order says";
    EXPECT_FALSE(own.Pauses(207));
  }
}

TEST(OwnInGroupTest, OnlyASoftBindMovesOwnSequencesAndOnce) {
  for (const auto how : {OwnSequences::kShare, OwnSequences::kSequential,
                         OwnSequences::kSoftPreempt, OwnSequences::kHardPreempt}) {
    OwnInGroup own(kPauseUs);
    own.Bind({.own = how}, 100);
    EXPECT_EQ(own.moves(), how == OwnSequences::kSoftPreempt) << ToString(how);
    own.Moved();
    EXPECT_FALSE(own.moves());
  }
}

// The end of each step tells the lead what a member could run; between steps it says only that
// there is something again.
TEST(OwnInGroupTest, AMemberTellsBetweenStepsThatItHasSomethingAgain) {
  OwnInGroup own(kPauseUs);
  own.Bind({.own = OwnSequences::kShare}, 100);
  EXPECT_EQ(own.TakeUntold(), std::nullopt) << "there is nothing";
  EXPECT_TRUE(own.Set({.tokens = 3}));
  EXPECT_FALSE(own.Set({.tokens = 3, .waits = true}));
  EXPECT_TRUE(own.work().waits);
  EXPECT_EQ(own.TakeUntold(), 3);
  EXPECT_TRUE(own.Set({.tokens = 5}));
  EXPECT_EQ(own.TakeUntold(), std::nullopt) << "the lead knows that there is something";
  own.Set({.tokens = 0});
  own.ToldByStep();
  own.Set({.tokens = 2});
  EXPECT_EQ(own.TakeUntold(), 2);
}

}  // namespace
}  // namespace skein::scheduler
