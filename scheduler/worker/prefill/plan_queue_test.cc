#include "scheduler/worker/prefill/plan_queue.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

PlanQueue Queue() { return {/*ahead=*/2, {.max_batch_tokens = 100, .max_batch_sequences = 4}}; }
PlanQueue::Place At(uint64_t sequence, bool sequence_parallel = false) {
  return {{sequence}, {7, 100 - sequence}, sequence_parallel};
}

TEST(PlanQueue, TheFirstIsTheOneWithTheSmallestSequence) {
  PlanQueue queue = Queue();
  EXPECT_EQ(queue.First(), std::nullopt);
  for (const uint64_t sequence : {3, 1, 2}) queue.Wait(At(sequence));
  EXPECT_EQ(queue.First(), At(1).id);
  queue.StopWaiting(At(1));
  queue.StopWaiting(At(1));
  EXPECT_EQ(queue.First(), At(2).id);
  EXPECT_EQ(queue.waiting(), 2u);
}

TEST(PlanQueue, KnowsWhetherAnOlderSpPlanWaits) {
  PlanQueue queue = Queue();
  queue.Wait(At(1));
  queue.Wait(At(3, true));
  EXPECT_FALSE(queue.SpPlanWaitsBefore({3}));
  EXPECT_TRUE(queue.SpPlanWaitsBefore({4}));
  EXPECT_TRUE(queue.CheckInvariants().ok()) << queue.CheckInvariants();
  queue.AddUnplaced(At(3, true));
  EXPECT_FALSE(queue.CheckInvariants().ok()) << "it has blocks, and waits for some";
  queue.StopWaiting(At(3, true));
  EXPECT_FALSE(queue.SpPlanWaitsBefore({4}));
  EXPECT_TRUE(queue.CheckInvariants().ok()) << queue.CheckInvariants();
}

TEST(PlanQueue, TheYoungestUnplacedPlanGivesItsBlocksFirst) {
  PlanQueue queue = Queue();
  queue.AddUnplaced(At(2, true));
  queue.AddUnplaced(At(4, true));
  EXPECT_EQ(queue.YoungestUnplaced({3}), At(4).id);
  queue.RemoveUnplaced(At(4, true));
  EXPECT_EQ(queue.YoungestUnplaced({3}), std::nullopt);
  EXPECT_EQ(queue.YoungestUnplaced({1}), At(2).id);
}

TEST(PlanQueue, ShortPromptsMayBeInFrontBeyondTheOthers) {
  PlanQueue queue = Queue();
  queue.EnterFront({7, 1}, "", 150);
  queue.EnterFront({7, 2}, "", 40);
  EXPECT_TRUE(queue.MayEnterFront("")) << "two steps have room for 200 tokens";
  queue.EnterFront({7, 3}, "", 10);
  EXPECT_FALSE(queue.MayEnterFront(""));
  queue.LeaveFront({7, 1});
  queue.LeaveFront({7, 1});
  EXPECT_FALSE(queue.InFront({7, 1}));
  for (uint64_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(queue.MayEnterFront(""));
    queue.EnterFront({7, 4 + i}, "", 1);
  }
  EXPECT_FALSE(queue.MayEnterFront("")) << "two steps have room for 8 sequences";
  EXPECT_EQ(queue.front(), 8u);
  EXPECT_TRUE(queue.CheckInvariants().ok()) << queue.CheckInvariants();
}

TEST(PlanQueue, TenantsTakeTurnsAndNoneFillsTheFrontForTheOthers) {
  PlanQueue queue = Queue();
  const auto of = [](const char* tenant, uint64_t sequence) {
    PlanQueue::Place place = At(sequence);
    place.tenant = tenant;
    return place;
  };
  for (const uint64_t sequence : {1, 2, 3, 4}) queue.Wait(of("burst", sequence));
  for (const uint64_t sequence : {1, 2}) {
    EXPECT_EQ(queue.First(), At(sequence).id);
    queue.Serve(of("burst", sequence), 5000);
    queue.EnterFront(At(sequence).id, "burst", 5000);
  }
  EXPECT_FALSE(queue.MayEnterFront("burst"));
  queue.Wait(of("quiet", 9));
  EXPECT_EQ(queue.First(), At(9).id) << "the others may not enter the front";
  EXPECT_TRUE(queue.MayEnterFront("quiet"));
  queue.Serve(of("quiet", 9), 10);
  queue.EnterFront(At(9).id, "quiet", 10);
  queue.LeaveFront(At(1).id);
  queue.Wait(of("quiet", 10));
  EXPECT_EQ(queue.First(), At(10).id) << "both may, and it was given less";
  queue.Serve(of("quiet", 10), 20000);
  queue.Wait(of("quiet", 11));
  EXPECT_EQ(queue.First(), At(3).id);
  EXPECT_TRUE(queue.CheckInvariants().ok()) << queue.CheckInvariants();
}

TEST(PlanQueue, KnowsThePlainPromptThatAnSpPlanWithBlocksWaitsFor) {
  PlanQueue queue = Queue();
  queue.AddUnplaced(At(3, true));
  queue.Wait(At(4));
  EXPECT_EQ(queue.OldestBeforeUnplaced(), std::nullopt);
  queue.Wait(At(2));
  queue.Wait(At(1));
  EXPECT_EQ(queue.OldestBeforeUnplaced(), At(1).id);
  queue.StopWaiting(At(1));
  EXPECT_EQ(queue.OldestBeforeUnplaced(), At(2).id);
  queue.RemoveUnplaced(At(3, true));
  EXPECT_EQ(queue.OldestBeforeUnplaced(), std::nullopt);
  EXPECT_TRUE(queue.CheckInvariants().ok()) << queue.CheckInvariants();
}

TEST(PlanQueue, APlainPromptIsNotBeforeAnSpPlanOfASmallerSequence) {
  PlanQueue queue = Queue();
  queue.Wait(At(3, true));
  PlanQueue::Place other = At(4);
  other.tenant = "other";
  queue.Wait(other);
  EXPECT_EQ(queue.First(), At(3).id);
  queue.StopWaiting(At(3, true));
  EXPECT_EQ(queue.First(), At(4).id);
}

TEST(PlanQueue, OfOneTenantTheNearestGoalThatCanBeReachedIsFirst) {
  PlanQueue queue = Queue();
  queue.Wait(At(1));
  queue.Wait(At(2), /*latest_us=*/500);
  queue.Wait(At(3), /*latest_us=*/100);
  EXPECT_EQ(queue.First(50), At(3).id);
  EXPECT_EQ(queue.First(101), At(2).id);
  EXPECT_EQ(queue.First(501), At(1).id);
}

}  // namespace
}  // namespace skein::scheduler
