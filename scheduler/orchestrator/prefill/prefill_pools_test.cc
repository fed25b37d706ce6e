#include "scheduler/orchestrator/prefill/prefill_pools.h"

#include "scheduler/orchestrator/prefill/testing/prefill_plans_testing.h"

namespace skein::scheduler::orchestrator {
namespace {

using PrefillPoolsTest = PrefillPoolTest;

TEST_F(PrefillPoolsTest, ThereIsNoPoolWithoutInstancesOrWithoutPlanning) {
  EXPECT_EQ(Pool(), nullptr);
  Up();
  EXPECT_NE(Pool(), nullptr);
  PrefillPools none(nullptr, &registry_);
  EXPECT_EQ(none.Of("m", requests_), nullptr);
  EXPECT_FALSE(none.plans());
}

TEST_F(PrefillPoolsTest, QueueTimesFollowTheChunksOfPlans) {
  const std::vector<InstanceId> up = {Up(), Up()};
  ASSERT_NE(Pool(), nullptr);
  Request& one = Submit(1000);
  Request& two = Submit(100);
  Plan(&one, {up[0]});
  Plan(&two, {up[0], up[1]});
  EXPECT_EQ(Queue(), (std::vector<double>{1.056, 1.056}));
  EXPECT_EQ(pools_.TakeReady("m"), (std::vector<RequestId>{one.spec->id}));
  pools_.BeginChunk(&one, 0, -kSecondUs / 2);
  EXPECT_EQ(Queue(), (std::vector<double>{0.556, 0.556}));
  pools_.EndChunk(&one, 0, 0);
  EXPECT_EQ(Queue(), (std::vector<double>{0.056, 0.056}));
  EXPECT_EQ(pools_.TakeReady("m"), (std::vector<RequestId>{two.spec->id}));
  pools_.DropPlan(two);
  two.members.clear();
  two.chunks.clear();
  EXPECT_EQ(Queue(), (std::vector<double>{0, 0}));
}

TEST_F(PrefillPoolsTest, AnEstimateCountsFromTheFirstInstanceThatIsFree) {
  const std::vector<InstanceId> up = {Up(), Up(), Up()};
  Request& early = Submit(1000);
  EXPECT_EQ(Plan(&early, {up[0]}), 0) << "there is no pool yet";
  ASSERT_NE(Pool(), nullptr);
  pools_.DropPlan(early);
  EXPECT_EQ(Plan(&early, {up[0]}), 1'000'000);
  EXPECT_EQ(Plan(&Submit(100), {up[0], up[1]}), 1'056'000) << "the second waits for the first";
  EXPECT_EQ(Plan(&Submit(100), {up[0], up[1]}), 56'000) << "both are free at once";
}

TEST_F(PrefillPoolsTest, ChunksMoveAlongWhenInstancesComeAndGo) {
  const InstanceId gone = Up();
  const InstanceId stays = Up();
  ASSERT_NE(Pool(), nullptr);
  Request& one = Submit(1000);
  Plan(&one, {gone, stays});
  registry_.Remove(gone);
  Up();
  ASSERT_NE(Pool(), nullptr);
  EXPECT_EQ(Pool()->IdAt(0), stays);
  EXPECT_NEAR(Queue()[0], 0.551, 1e-9);
  EXPECT_EQ(Queue()[1], 0);
}

TEST_F(PrefillPoolsTest, WhatTakesNothingNowOrWasTriedIsAbsent) {
  const std::vector<InstanceId> up = {Up(), Up(), Up()};
  registry_.Avoid(*registry_.Find(up[1]));
  const PoolQueue queue = pools_.QueueOf("m", Pool(), {up[2]}, 0);
  EXPECT_EQ(queue.usable, 1);
  EXPECT_EQ(queue.queue_s[0], 0);
  EXPECT_EQ(queue.queue_s[1], kAbsentQueueS);
  EXPECT_EQ(queue.queue_s[2], kAbsentQueueS);
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
