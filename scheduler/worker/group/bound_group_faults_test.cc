// Whoever dies or falls silent, whenever it does, the other ranks of a bound group work alone
// again, and no block is kept (testing/bound_node.h).
#include <gtest/gtest.h>

#include <cstdint>

#include "scheduler/worker/group/testing/bound_node.h"

namespace skein::scheduler {
namespace {

using testing::BoundNode;

TEST(BoundGroupFaults, WhoeverDiesWheneverTheOthersWorkAloneAgain) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const int size = seed % 3 == 0 ? 4 : 2;
    BoundNode node(size, seed);
    for (uint32_t moves = seed * 13 % 2'000; moves > 0; --moves) node.Move();
    node.StopOrders();
    node.Kill(static_cast<int>(seed / 3) % size);
    EXPECT_TRUE(node.RunUntil([&] { return node.AllAreAlone(); }));
    node.Check();
    node.ExpectNothingIsKept();
    if (::testing::Test::HasFailure()) break;
  }
}

// It answers nothing, and its death is not told.
TEST(BoundGroupFaults, WhoeverIsStoppedIsNotAwaitedForEver) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    const int size = seed % 3 == 0 ? 4 : 2;
    BoundNode node(size, seed);
    for (uint32_t moves = seed * 13 % 2'000; moves > 0; --moves) node.Move();
    for (int i = 0; i < 4; ++i) node.NewRequest();
    node.Stop(1 + static_cast<int>(seed) % (size - 1));
    EXPECT_TRUE(node.RunUntil([&] { return node.AllAreAlone() || !node.LeadIsBound(); }));
    node.StopOrders();
    EXPECT_TRUE(node.RunUntil([&] { return node.AllAreAlone(); }));
    node.ExpectNothingIsKept();
    if (::testing::Test::HasFailure()) break;
  }
}

}  // namespace
}  // namespace skein::scheduler
