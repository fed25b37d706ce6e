#include "scheduler/kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace skein::scheduler {
namespace {

std::vector<int32_t> Values(const BlockTable& table) {
  std::vector<int32_t> values;
  for (BlockId block : *table) values.push_back(block.value);
  return values;
}

TEST(BlockPoolTest, CountsAddUpInEveryState) {
  BlockPool pool(10);
  const BlockTable a = *pool.Allocate(4);
  EXPECT_EQ(pool.Counts(), (BlockCounts{.free = 6, .held = 4, .total = 10}));
  pool.Quarantine(*a);
  EXPECT_EQ(pool.Counts(), (BlockCounts{.free = 6, .held = 4, .quarantined = 4, .total = 10}));
  pool.EndQuarantine(*a);
  EXPECT_EQ(pool.Counts(), (BlockCounts{.free = 10, .total = 10}));
  EXPECT_TRUE(pool.CheckInvariants().ok());
}

TEST(BlockPoolTest, RefusesMoreThanIsFreeAndTakesNothing) {
  BlockPool pool(3);
  const BlockTable a = *pool.Allocate(2);
  EXPECT_EQ(pool.Allocate(2).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.Counts().free, 1);
}

TEST(BlockPoolTest, PrefersTheSmallestRunThatIsLargeEnough) {
  BlockPool pool(12);
  const BlockTable a = *pool.Allocate(4);  // 0-3
  const BlockTable b = *pool.Allocate(1);  // 4
  const BlockTable c = *pool.Allocate(2);  // 5-6
  const BlockTable d = *pool.Allocate(1);  // 7; 8-11 stay free
  pool.Free(*a);
  pool.Free(*c);
  EXPECT_EQ(Values(*pool.Allocate(2)), (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(Values(*pool.Allocate(3)), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Values(b), (std::vector<int32_t>{4}));
  EXPECT_EQ(Values(d), (std::vector<int32_t>{7}));
}

TEST(BlockPoolTest, FallsBackToTheLargestRuns) {
  BlockPool pool(8);
  const BlockTable a = *pool.Allocate(2);  // 0-1
  const BlockTable b = *pool.Allocate(1);  // 2
  const BlockTable c = *pool.Allocate(3);  // 3-5
  const BlockTable d = *pool.Allocate(2);  // 6-7
  pool.Free(*a);
  pool.Free(*c);
  EXPECT_EQ(Values(*pool.Allocate(4)), (std::vector<int32_t>{3, 4, 5, 0}));
  EXPECT_TRUE(pool.CheckInvariants().ok());
}

TEST(BlockPoolDeathTest, Invariant3DoubleFreeEndsTheProcess) {
  BlockPool pool(2);
  const BlockTable a = *pool.Allocate(1);
  pool.Free(*a);
  EXPECT_DEATH(pool.Free(*a), "block freed twice");
  EXPECT_DEATH(pool.Quarantine(*a), "only held blocks");
}

TEST(BlockPoolTest, Invariants1And2HoldOverARandomHistory) {
  std::mt19937_64 random(7);
  BlockPool pool(97);
  std::vector<BlockTable> tables;
  for (int i = 0; i < 3000; ++i) {
    if (tables.empty() || random() % 2 == 0) {
      absl::StatusOr<BlockTable> table = pool.Allocate(1 + random() % 20);
      if (table.ok()) tables.push_back(*table);
    } else {
      const size_t pick = random() % tables.size();
      const BlockTable table = tables[pick];
      const auto what = random() % 4;
      if (what == 0) {
        pool.Share(*table);
        tables.push_back(table);
        continue;
      }
      if (what == 1) pool.Quarantine(*table);
      what == 1 ? pool.EndQuarantine(*table) : pool.Free(*table);
      tables.erase(tables.begin() + pick);
    }
    ASSERT_TRUE(pool.CheckInvariants().ok()) << pool.CheckInvariants();
  }
  for (const BlockTable& table : tables) pool.Free(*table);
  EXPECT_EQ(Values(*pool.Allocate(97)).front(), 0);  // one run again
}

TEST(BlockPoolTest, ASharedBlockIsFreeWhenItsLastTableIs) {
  BlockPool pool(4);
  const BlockTable a = *pool.Allocate(2);
  pool.Share(*a);
  EXPECT_EQ(pool.Counts(), (BlockCounts{.free = 2, .held = 2, .shared = 2, .total = 4}));
  pool.Free(*a);
  EXPECT_EQ(pool.Counts(), (BlockCounts{.free = 2, .held = 2, .total = 4}));
  pool.Free(*a);
  EXPECT_EQ(pool.Counts(), (BlockCounts{.free = 4, .total = 4}));
  EXPECT_TRUE(pool.CheckInvariants().ok());
}

TEST(BlockPoolTest, ASharedBlockInQuarantineIsFreeWhenTableAndQuarantineHaveEnded) {
  BlockPool pool(2);
  const BlockTable a = *pool.Allocate(1);
  pool.Share(*a);
  pool.Quarantine(*a);
  EXPECT_EQ(pool.Counts(), (BlockCounts{.free = 1, .held = 1, .total = 2})) << "one uses it";
  pool.EndQuarantine(*a);
  EXPECT_EQ(pool.Counts().free, 1);
  pool.Share(*a);
  pool.Quarantine(*a);
  pool.Free(*a);
  EXPECT_EQ(pool.Counts(), (BlockCounts{.free = 1, .held = 1, .quarantined = 1, .total = 2}));
  pool.EndQuarantine(*a);
  EXPECT_EQ(pool.Counts().free, 2);
  EXPECT_TRUE(pool.CheckInvariants().ok());
}

TEST(BlockPool, AnExtendedTableBeginsWithTheOldOneARefusedOneIsAsItWas) {
  BlockPool pool(6);
  const BlockTable empty;
  const BlockTable two = *pool.Extend(empty, 2);
  ASSERT_EQ(two->size(), 2u);
  const BlockTable other = *pool.Allocate(2);
  const BlockTable four = *pool.Extend(two, 4);
  EXPECT_EQ(two->size(), 2u) << "a step may still read it";
  ASSERT_EQ(four->size(), 4u);
  EXPECT_TRUE(std::equal(two->begin(), two->end(), four->begin()));
  EXPECT_EQ(*pool.Extend(four, 3), four);
  EXPECT_EQ(pool.Extend(four, 5).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool.Counts().held, 6);
  pool.Free(*four);
  pool.Free(*other);
  EXPECT_EQ(pool.Counts().free, 6);
  EXPECT_TRUE(pool.CheckInvariants().ok());
}

}  // namespace
}  // namespace skein::scheduler
