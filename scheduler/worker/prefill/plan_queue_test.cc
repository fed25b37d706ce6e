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
  queue.EnterFront({7, 1}, 150);
  queue.EnterFront({7, 2}, 40);
  EXPECT_TRUE(queue.MayEnterFront()) << "two steps have room for 200 tokens";
  queue.EnterFront({7, 3}, 10);
  EXPECT_FALSE(queue.MayEnterFront());
  queue.LeaveFront({7, 1});
  queue.LeaveFront({7, 1});
  EXPECT_FALSE(queue.InFront({7, 1}));
  for (uint64_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(queue.MayEnterFront());
    queue.EnterFront({7, 4 + i}, 1);
  }
  EXPECT_FALSE(queue.MayEnterFront()) << "two steps have room for 8 sequences";
  EXPECT_EQ(queue.front(), 8u);
  EXPECT_TRUE(queue.CheckInvariants().ok()) << queue.CheckInvariants();
}

}  // namespace
}  // namespace skein::scheduler
