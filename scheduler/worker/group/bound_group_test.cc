// Ranks that bind and release at random (testing/bound_node.h): every answer is the one of a rank
// alone, no block is lost, steps have one order, own sequences fare as each bind says (share, end
// first, join, pause), and no step reads a block that a late writer reached.
#include "scheduler/worker/group/bound_group.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>

#include "scheduler/base/formation_messages.h"
#include "scheduler/worker/group/testing/bound_node.h"

namespace skein::scheduler {
namespace {

using testing::BoundNode;

TEST(BoundGroup, SwitchesUnderLoadChangeNoAnswer) {
  std::map<OwnSequences, int64_t> commits;
  int64_t own = 0, tp = 0, sp = 0, overs = 0, moved = 0, paused = 0;
  int64_t came = 0, given_up = 0, refusals = 0, cut_off = 0;
  uint64_t preemptions = 0;
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    SCOPED_TRACE(seed);
    BoundNode node(seed % 3 == 0 ? 4 : 2, seed);
    for (int moves = 0; moves < 3'000; ++moves) {
      node.Move();
      if (moves % 64 == 0) node.Check();
    }
    node.OnlyOrders();
    EXPECT_TRUE(node.RunUntil([&] { return node.AllAreAnswered(); })) << "a sequence starves\n"
                                                                      << node.Describe();
    if (::testing::Test::HasFailure()) break;
    node.StopOrders();
    node.EndIt(Switch::kSequential);
    EXPECT_TRUE(node.RunUntil([&] { return node.AllAreAlone(); }));
    node.Check();
    node.ExpectRightAnswers();
    node.ExpectNothingIsKept();
    came += node.counts().came;
    given_up += node.counts().given_up;
    refusals += node.counts().refusals;
    cut_off += node.counts().cut_off;
    for (const auto& [way, count] : node.counts().commits) commits[way] += count;
    moved += node.counts().moved;
    paused += node.counts().paused_steps;
    own += node.counts().own_steps;
    tp += node.counts().tp_steps;
    sp += node.counts().sp_steps;
    overs += node.counts().overs;
    preemptions += node.Preemptions();
    if (::testing::Test::HasFailure()) break;
  }
  for (const auto way : {OwnSequences::kShare, OwnSequences::kSequential,
                         OwnSequences::kSoftPreempt, OwnSequences::kHardPreempt}) {
    EXPECT_GT(commits[way], 100) << ToString(way);
  }
  EXPECT_GT(moved, 20);
  EXPECT_GT(paused, 100);
  EXPECT_GT(own, 1'000);
  EXPECT_GT(tp, 1'000);
  EXPECT_GT(sp, 1'000);
  EXPECT_GT(overs, 1'000);
  EXPECT_GT(preemptions, 20u);
  EXPECT_GT(came, 300);
  EXPECT_GT(given_up, 100);
  EXPECT_GT(refusals, 200);
  EXPECT_GT(cut_off, 10);
}

// Without one, ConfigOf's is: SP of more than 6 tokens (seed 2), or TP of any number (seed 3).
TEST(BoundGroup, TheOrderToPrepareSaysAboveHowManyTokensStepsRunInSp) {
  for (const uint32_t seed : {2u, 3u}) {
    SCOPED_TRACE(seed);
    BoundNode node(/*size=*/2, seed);
    node.OrderShift({.tokens = seed == 2 ? 1'000 : 0});
    for (int moves = 0; moves < 3'000; ++moves) node.Move();
    node.OnlyOrders();
    EXPECT_TRUE(node.RunUntil([&] { return node.AllAreAnswered(); })) << node.Describe();
    node.ExpectRightAnswers();
    EXPECT_GT(seed == 2 ? node.counts().tp_steps : node.counts().sp_steps, 20);
    EXPECT_EQ(seed == 2 ? node.counts().sp_steps : node.counts().tp_steps, 0);
  }
}

// Four ranks: in SP 2 x TP 2 above that number, never in pure SP.
TEST(BoundGroup, TheOrderToPrepareSaysInWhichBaseStepsRun) {
  for (const int64_t above : {0, 3}) {
    SCOPED_TRACE(above);
    BoundNode node(/*size=*/4, /*seed=*/3);
    node.OrderShift({.tokens = above, .tp = 2});
    for (int moves = 0; moves < 6'000; ++moves) node.Move();
    node.OnlyOrders();
    EXPECT_TRUE(node.RunUntil([&] { return node.AllAreAnswered(); })) << node.Describe();
    node.ExpectRightAnswers();
    EXPECT_GT(node.counts().sp_tp_steps, 20);
    EXPECT_EQ(node.counts().tp_steps > 0, above > 0);
    EXPECT_EQ(node.counts().sp_steps, 0);
  }
}

}  // namespace
}  // namespace skein::scheduler
