#include "scheduler/worker/tombstones.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

constexpr RequestId kId = {7, 1};

TEST(TombstonesTest, ALateWordOfAnOlderEpochChangesNothing) {
  Tombstones stones;
  stones.Put(kId, {6}, /*committed=*/true);
  stones.Put(kId, {5}, false);
  EXPECT_TRUE(stones.Covers(kId, {6}));
  EXPECT_TRUE(stones.Committed(kId, {6}));
  EXPECT_FALSE(stones.Committed(kId, {5}));
}

TEST(TombstonesTest, TheNewestEpochCoversAllBefore) {
  Tombstones stones;
  EXPECT_FALSE(stones.Covers(kId, {0}));
  stones.Put(kId, {5}, true);
  stones.Put(kId, {6}, false);
  EXPECT_TRUE(stones.Covers(kId, {5}));
  EXPECT_TRUE(stones.Covers(kId, {6}));
  EXPECT_FALSE(stones.Covers(kId, {7}));
  EXPECT_FALSE(stones.Committed(kId, {6})) << "that was the epoch before";
  EXPECT_FALSE(stones.Covers({7, 2}, {5}));
}

TEST(TombstonesTest, WhatWasCommittedStaysSoInItsEpoch) {
  Tombstones stones;
  stones.Put(kId, {5}, true);
  stones.Put(kId, {5}, false);
  EXPECT_TRUE(stones.Committed(kId, {5}));
}

TEST(TombstonesTest, TheOldestRequestIsForgottenFirst) {
  Tombstones stones(2);
  stones.Put({7, 1}, {5}, false);
  stones.Put({7, 2}, {5}, false);
  stones.Put({7, 2}, {6}, false);
  EXPECT_TRUE(stones.Covers({7, 1}, {5}));
  stones.Put({7, 3}, {5}, false);
  EXPECT_FALSE(stones.Covers({7, 1}, {5}));
  EXPECT_TRUE(stones.Covers({7, 2}, {6}));
  EXPECT_TRUE(stones.Covers({7, 3}, {5}));
  EXPECT_TRUE(stones.CheckInvariants().ok()) << stones.CheckInvariants();
}

}  // namespace
}  // namespace skein::scheduler
