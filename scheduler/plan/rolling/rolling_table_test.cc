#include "scheduler/plan/rolling/rolling_table.h"

#include <gtest/gtest.h>

#include "scheduler/plan/rolling/rolling.h"

namespace skein::scheduler {
namespace {

TEST(RollingTable, PicksTheNearestLoad) {
  const auto table = RollingTable::Make({{1, {0.1, 1}}, {3, {0.2, 2}}});
  ASSERT_TRUE(table.ok());
  EXPECT_EQ(table->At(0).price, 0.1);
  EXPECT_EQ(table->At(2).price, 0.1);
  EXPECT_EQ(table->At(2.1).slack, 2);
  EXPECT_FALSE(RollingTable::Make({}).ok());
  EXPECT_FALSE(RollingTable::Make({{1, {1, 1}}}).ok());
  EXPECT_FALSE(RollingTable::Make({{2, {0, 0}}, {1, {0, 0}}}).ok());
  EXPECT_FALSE(RollingTable::Make({{1, {0, -1}}}).ok());
  EXPECT_FALSE(RollingTable::Make({{1, {0, 1, -1}}}).ok());
  EXPECT_FALSE(RollingTable::Make({{1, {0, 1, 1, -1}}}).ok());
  EXPECT_FALSE(RollingTable::Make({{1, {0, 1, 1, 1, NAN}}}).ok());
}

// Without a table, or with an empty row, the planner is the same.
TEST(RollingTable, HasThePlannersOwnDefaults) {
  EXPECT_EQ(RollingSetting().tuning, RollingOptions().tuning);
  EXPECT_EQ(RollingTable::Constant({}).At(3), RollingOptions().tuning);
}

TEST(RollingSelector, FollowsTheLoadEveryThirtySeconds) {
  RollingSelector selector(*RollingTable::Make({{1, {0.1, 1}}, {10, {0.5, 1}}}));
  EXPECT_EQ(selector.Current(0).price, 0.1);
  for (int i = 1; i <= 400; ++i) selector.OnArrival(i * kSecondUs / 10);
  EXPECT_EQ(selector.Current(40 * kSecondUs).price, 0.5);
  EXPECT_EQ(selector.Current(69 * kSecondUs).price, 0.5);
  EXPECT_EQ(selector.Current(110 * kSecondUs).price, 0.1);
}

TEST(RollingSelector, AReplacedTableIsInForceAtOnce) {
  RollingSelector selector(RollingTable::Constant({.price = 0.1}));
  selector.Replace(RollingTable::Constant({.price = 0.2}));
  EXPECT_EQ(selector.Current(0).price, 0.2);
  selector.Replace(RollingTable::Constant({.price = 0.3}));
  EXPECT_EQ(selector.Current(1).price, 0.3);
}

}  // namespace
}  // namespace skein::scheduler
