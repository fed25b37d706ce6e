#include "scheduler/base/own_end_first.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

TEST(OwnEndFirstTest, WhichMembersWaitForTheirOwnSequences) {
  EXPECT_TRUE(OwnEndFirst(OwnSequences::kSequential, /*leads=*/true));
  EXPECT_TRUE(OwnEndFirst(OwnSequences::kSequential, /*leads=*/false));
  EXPECT_FALSE(OwnEndFirst(OwnSequences::kSoftPreempt, /*leads=*/true));
  EXPECT_TRUE(OwnEndFirst(OwnSequences::kSoftPreempt, /*leads=*/false));
  for (const bool leads : {false, true}) {
    EXPECT_FALSE(OwnEndFirst(OwnSequences::kShare, leads));
    EXPECT_FALSE(OwnEndFirst(OwnSequences::kHardPreempt, leads));
  }
}

TEST(OwnEndFirstTest, OnlyASoftBindTakesWhatMembersRunIntoTheGroup) {
  EXPECT_TRUE(OwnJoinGroup(OwnSequences::kSoftPreempt));
  EXPECT_FALSE(OwnJoinGroup(OwnSequences::kShare));
  EXPECT_FALSE(OwnJoinGroup(OwnSequences::kSequential));
  EXPECT_FALSE(OwnJoinGroup(OwnSequences::kHardPreempt));
}

}  // namespace
}  // namespace skein::scheduler
