#include "scheduler/worker/kv_in/coming_blocks.h"

#include <gtest/gtest.h>

#include <vector>

namespace skein::scheduler {
namespace {

class ComingBlocksTest : public ::testing::Test {
 protected:
  static constexpr ComingBlocks::Attempt kOne{{7, 1}, {5}};

  int64_t Free() const { return pool_.Counts().free; }
  void Close(GrantId grant) { EXPECT_TRUE(quarantine_.Closed(grant).has_value()); }

  BlockPool pool_{10};
  std::vector<GrantId> closing_;
  BlockQuarantine quarantine_{&pool_, [this](GrantId grant) { closing_.push_back(grant); }};
  uint64_t grants_ = 0;
  ComingBlocks coming_{&pool_, &quarantine_, [this] { return GrantId{++grants_}; }};
};

TEST_F(ComingBlocksTest, WhatIsGivenUpIsFreeWhenItsGrantIsClosed) {
  const auto kept = coming_.Keep(kOne, 4);
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(kept->blocks->size(), 4u);
  coming_.Drop(kOne);
  EXPECT_EQ(closing_, std::vector<GrantId>{kept->grant});
  EXPECT_EQ(Free(), 6);
  EXPECT_EQ(pool_.Counts().quarantined, 4);
  Close(kept->grant);
  EXPECT_EQ(Free(), 10);
}

// The same attempt is kept and given up again before the first grant is closed.
TEST_F(ComingBlocksTest, EachKeepingHasAGrantOfItsOwn) {
  const GrantId first = coming_.Keep(kOne, 4)->grant;
  coming_.Drop(kOne);
  const GrantId second = coming_.Keep(kOne, 5)->grant;
  coming_.DropAll();
  EXPECT_EQ(Free(), 1);
  Close(second);
  EXPECT_EQ(Free(), 6);
  Close(first);
  EXPECT_EQ(Free(), 10);
  EXPECT_TRUE(quarantine_.CheckInvariants().ok());
}

TEST_F(ComingBlocksTest, WholeBlocksAreTheCallersAtOnce) {
  const GrantId grant = coming_.Keep(kOne, 4)->grant;
  const BlockTable blocks = coming_.TakeWhole(kOne);
  EXPECT_EQ(closing_, std::vector<GrantId>{grant});
  EXPECT_EQ(pool_.Counts().quarantined, 0);
  pool_.Free(*blocks);
  EXPECT_EQ(Free(), 10);
  coming_.Drop(kOne);  // unknown by now
}

TEST_F(ComingBlocksTest, NothingIsKeptWhereTooFewAreFree) {
  EXPECT_TRUE(absl::IsResourceExhausted(coming_.Keep(kOne, 11).status()));
  EXPECT_FALSE(coming_.Has(kOne));
  EXPECT_EQ(Free(), 10);
}

}  // namespace
}  // namespace skein::scheduler
