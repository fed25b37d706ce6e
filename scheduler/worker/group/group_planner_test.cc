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

// Members tell their free blocks with the ends of steps: an idle group's are long past.
TEST(GroupPlanner, WhatMembersToldOnceDoesNotKeepAnIdleGroupFromTakingKv) {
  BlockPool pool(8);
  const GroupBatch batch(&pool, KvLayout{2}, /*tokens_per_block=*/32);
  GroupPlanner planner({.ranks = 2, .tokens_per_block = 32, .total_blocks = 8});
  planner.Completed({.step = 1, .free_blocks = {8, 2}, .counted = {1, 1}, .own_tokens = {0, 0}});
  EXPECT_TRUE(planner.HasRoom(batch, 8).ok());
  EXPECT_FALSE(planner.HasRoom(batch, 9).ok());
  planner.Add({1, 1}, {1}, /*priority=*/0, /*arrived_us=*/0, /*tokens=*/40);
  EXPECT_FALSE(planner.HasRoom(batch, 4).ok()) << "steps run: it is as told";
}

// For lack of requests, or of blocks.
TEST(GroupPlanner, PausedOwnSequencesRunWhereTheGroupRunsNothing) {
  BlockPool pool(8);
  const GroupBatch batch(&pool, KvLayout{2}, /*tokens_per_block=*/32);
  GroupPlanner planner(
      {.ranks = 2, .tokens_per_block = 32, .total_blocks = 8, .full_tp = {1, 2}, .base = {2, 1}});
  const auto own_steps_of_100 = [&] {
    int own = 0;
    for (int i = 0; i < 100; ++i) {
      const std::optional<FeedPlan> plan = planner.Next(batch, /*own_tokens=*/5, false);
      own += plan.has_value() && plan->mode.own() && plan->own_tokens > 0 ? 1 : 0;
      planner.Refused({});  // nothing of it remains
    }
    return own;
  };
  planner.PauseOwn(true);
  EXPECT_EQ(own_steps_of_100(), 100);
  planner.Add({1, 1}, {1}, /*priority=*/0, /*arrived_us=*/0, /*tokens=*/40);
  EXPECT_EQ(own_steps_of_100(), 0);
  const absl::StatusOr<BlockTable> own_blocks = pool.Allocate(8);
  ASSERT_TRUE(own_blocks.ok());
  EXPECT_EQ(own_steps_of_100(), 100) << "only they can free them";
  pool.Free(**own_blocks);
  planner.PauseOwn(false);
  EXPECT_GT(own_steps_of_100(), 5);
}

TEST(GroupPlanner, PausedOwnSequencesThatWaitForBlocksKeepNobodyOut) {
  BlockPool pool(8);
  const GroupBatch batch(&pool, KvLayout{2}, /*tokens_per_block=*/32);
  GroupPlanner planner(
      {.ranks = 2, .tokens_per_block = 32, .total_blocks = 8, .full_tp = {1, 2}, .base = {2, 1}});
  planner.Add({1, 1}, {1}, /*priority=*/0, /*arrived_us=*/0, /*tokens=*/40);
  const auto enters = [&] {
    const std::optional<FeedPlan> plan = planner.Next(batch, /*own_tokens=*/0, /*own_waits=*/true);
    planner.Refused({});  // nothing of it remains
    return plan.has_value() && !plan->added.empty();
  };
  EXPECT_FALSE(enters());
  planner.PauseOwn(true);
  EXPECT_TRUE(enters());
}

// Whatever the base: pure SP of four, or SP 2 x TP 2.
TEST(GroupPlanner, StepsOfMoreTokensThanTheThresholdRunInTheBase) {
  constexpr StepMode kFullTp = {1, 4};
  for (const StepMode base : {StepMode{4, 1}, StepMode{2, 2}}) {
    for (const int64_t tokens : {1, 8, 9, 40}) {
      BlockPool pool(8);
      const GroupBatch batch(&pool, KvLayout{4}, /*tokens_per_block=*/64);
      GroupPlanner planner({.ranks = 4,
                            .tokens_per_block = 64,
                            .total_blocks = 8,
                            .full_tp = kFullTp,
                            .base = base,
                            .shift_tokens = 8});
      planner.Add({1, 1}, {1}, /*priority=*/0, /*arrived_us=*/0, tokens);
      const std::optional<FeedPlan> plan =
          planner.Next(batch, /*own_tokens=*/0, /*own_waits=*/false);
      ASSERT_TRUE(plan.has_value());
      EXPECT_EQ(plan->mode, tokens > 8 ? base : kFullTp) << tokens << " tokens, sp " << base.sp;
    }
  }
}

}  // namespace
}  // namespace skein::scheduler
