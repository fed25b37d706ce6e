#include "scheduler/worker/group/group_planner.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

TEST(StepShare, StepsFollowTheTokensThatWait) {
  StepShare share(0);
  int own = 0;
  for (int i = 0; i < 400; ++i)
    own += share.NextIsOwn(/*own_tokens=*/1, /*group_tokens=*/3) ? 1 : 0;
  EXPECT_EQ(own, 100);
}

TEST(StepShare, NobodyStarves) {
  StepShare share(0);
  int own = 0;
  for (int i = 0; i < 1'600; ++i) own += share.NextIsOwn(1, 100'000) ? 1 : 0;
  EXPECT_EQ(own, 100);
  int group = 0;
  for (int i = 0; i < 1'600; ++i) group += share.NextIsOwn(100'000, 1) ? 0 : 1;
  EXPECT_EQ(group, 100);
}

TEST(StepShare, AFixedShareIsKept) {
  StepShare share(0.25);
  int own = 0;
  for (int i = 0; i < 400; ++i) own += share.NextIsOwn(100, 1) ? 1 : 0;
  EXPECT_EQ(own, 100);
}

TEST(StepShare, WhoIsAloneGetsEveryStep) {
  StepShare share(0.25);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(share.NextIsOwn(1, 0));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(share.NextIsOwn(0, 1));
}

}  // namespace
}  // namespace skein::scheduler
