#include "scheduler/kv/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

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

TEST(BlockPoolTest, ExtraBlocksAreTakenAfterOwnOnesAndGoAsTheyBecomeFree) {
  BlockPool pool(4);
  pool.Grow({{6}, 3});  // 4 and 5 are somebody else's
  EXPECT_EQ(pool.Counts(), (BlockCounts{.free = 7, .total = 7}));
  const BlockTable a = *pool.Allocate(3);
  const BlockTable b = *pool.Allocate(3);
  EXPECT_EQ(Values(a), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(Values(b), (std::vector<int32_t>{3, 6, 7}));
  pool.Shrink();
  EXPECT_EQ(pool.Counts(), (BlockCounts{.free = 0, .held = 6, .total = 6}));
  EXPECT_EQ(pool.going(), 2);
  EXPECT_FALSE(pool.Allocate(1).ok());
  pool.Free(*a);
  const std::optional<BlockId> moved = pool.Replace({6});
  ASSERT_TRUE(moved.has_value());
  EXPECT_EQ(moved->value, 0);
  EXPECT_EQ(pool.Counts(), (BlockCounts{.free = 2, .held = 3, .total = 5}));
  pool.Quarantine({{{7}}});
  EXPECT_EQ(pool.going(), 1);
  pool.EndQuarantine({{{7}}});
  EXPECT_EQ(pool.Counts(), (BlockCounts{.free = 2, .held = 2, .total = 4}));
  EXPECT_EQ(pool.going(), 0);
  EXPECT_TRUE(pool.CheckInvariants().ok()) << pool.CheckInvariants();
}

TEST(BlockPoolTest, ExtraBlocksThatComeBackWhileSomeAreToGoAreThereOnce) {
  BlockPool pool(1);
  pool.Grow({{1}, 4});
  const BlockTable a = *pool.Allocate(5);
  pool.Shrink();
  EXPECT_EQ(pool.going(), 4);
  pool.Grow({{1}, 2});
  EXPECT_EQ(pool.Counts(), (BlockCounts{.held = 5, .total = 5}));
  EXPECT_EQ(pool.going(), 2);
  pool.Free(*a);
  EXPECT_EQ(pool.Counts(), (BlockCounts{.free = 3, .total = 3}));
  EXPECT_TRUE(pool.CheckInvariants().ok()) << pool.CheckInvariants();
}

// Against a reference that knows each block's tables and quarantines, and which extra ones are
// there.
TEST(BlockPoolTest, BlocksAreConservedWhileTheExtraOnesComeAndGo) {
  constexpr int32_t kOwn = 40, kFirst = 42;
  std::mt19937_64 random(19);
  BlockPool pool(kOwn);
  std::vector<std::pair<BlockTable, bool>> tables;  // and whether it is in quarantine
  int32_t extra = 0;
  int changes = 0;
  const auto stays = [&](BlockId id) {
    return id.value < kOwn || (id.value >= kFirst && id.value < kFirst + extra);
  };
  const auto expect_conserved = [&] {
    std::map<int32_t, int> users;
    for (const auto& [table, quarantined] : tables) {
      for (const BlockId id : *table) ++users[id.value];
    }
    const auto going = std::count_if(users.begin(), users.end(),
                                     [&](const auto& used) { return !stays({used.first}); });
    const BlockCounts counts = pool.Counts();
    ASSERT_EQ(counts.held, static_cast<int64_t>(users.size()));
    ASSERT_EQ(counts.total, kOwn + extra + going);
    ASSERT_EQ(counts.free, counts.total - counts.held);
    ASSERT_EQ(pool.going(), going);
    ASSERT_TRUE(pool.CheckInvariants().ok()) << pool.CheckInvariants();
  };
  for (int i = 0; i < 20'000; ++i) {
    const auto what = random() % 8;
    if (what == 0) {
      if (extra > 0) {
        pool.Shrink();
        extra = 0;
      } else {
        extra = 1 + static_cast<int32_t>(random() % 30);
        pool.Grow({{kFirst}, extra});
      }
      ++changes;
    } else if (what <= 3 || tables.empty()) {
      absl::StatusOr<BlockTable> table = pool.Allocate(1 + random() % 12);
      if (!table.ok()) continue;
      for (const BlockId id : **table) ASSERT_TRUE(stays(id)) << id.value << " was to go";
      tables.emplace_back(*table, false);
    } else {
      const size_t pick = random() % tables.size();
      auto& [table, quarantined] = tables[pick];
      if (what == 4 && !quarantined) {
        pool.Share(*table);
        tables.emplace_back(BlockTable(table), false);
      } else if (what == 5 && !quarantined) {
        pool.Quarantine(*table);
        quarantined = true;
      } else if (what == 6 && !quarantined) {  // moved out of what goes, in all its tables
        for (const BlockId from : std::vector<BlockId>(*table)) {
          if (stays(from)) continue;
          const std::optional<BlockId> to = pool.Replace(from);
          if (!to.has_value()) continue;
          ASSERT_LT(to->value, kOwn);
          for (auto& [uses, in_quarantine] : tables) {
            if (in_quarantine) continue;
            std::vector<BlockId> blocks(*uses);
            std::replace(blocks.begin(), blocks.end(), from, *to);
            uses = std::make_shared<const std::vector<BlockId>>(std::move(blocks));
          }
        }
      } else {
        quarantined ? pool.EndQuarantine(*table) : pool.Free(*table);
        tables.erase(tables.begin() + static_cast<std::ptrdiff_t>(pick));
      }
    }
    expect_conserved();
  }
  EXPECT_GT(changes, 2000);
}

}  // namespace
}  // namespace skein::scheduler
