#include "scheduler/worker/kv_in/block_quarantine.h"

#include <gtest/gtest.h>

#include <vector>

namespace skein::scheduler {
namespace {

class BlockQuarantineTest : public testing::Test {
 protected:
  ~BlockQuarantineTest() override {
    EXPECT_TRUE(quarantine_.CheckInvariants().ok()) << quarantine_.CheckInvariants();
    EXPECT_TRUE(pool_.CheckInvariants().ok()) << pool_.CheckInvariants();
  }

  const BlockQuarantine::Attempt one_{{7, 1}, {5}}, again_{{7, 1}, {6}};
  std::vector<GrantId> asked_;
  BlockPool pool_{8};
  BlockQuarantine quarantine_{&pool_, [this](GrantId grant) { asked_.push_back(grant); }};
};

TEST_F(BlockQuarantineTest, BlocksAreFreeWhenTheirGrantWasClosed) {
  const BlockTable blocks = *pool_.Allocate(3);
  quarantine_.Close(one_, {4});
  quarantine_.Close(one_, {4});
  EXPECT_EQ(asked_, std::vector<GrantId>{{4}}) << "asked once";
  quarantine_.Add(one_, blocks, {4}, 0);
  EXPECT_EQ(pool_.Counts().quarantined, 3);
  EXPECT_FALSE(quarantine_.TakeFreed());
  EXPECT_EQ(quarantine_.Closed({4}), one_);
  EXPECT_TRUE(quarantine_.TakeFreed());
  EXPECT_EQ(pool_.Counts().held, 0);
  EXPECT_FALSE(quarantine_.Closed({4}).has_value()) << "a duplicate";
}

TEST_F(BlockQuarantineTest, ACopyHoldsBlocksWhoseGrantWasClosed) {
  quarantine_.Close(one_, {4});
  quarantine_.Add(one_, *pool_.Allocate(2), {4}, 2);
  EXPECT_TRUE(quarantine_.Closed({4}).has_value());
  EXPECT_TRUE(quarantine_.CopyEnded(one_));
  EXPECT_TRUE(quarantine_.Has(one_));
  EXPECT_TRUE(quarantine_.CopyEnded(one_));
  EXPECT_FALSE(quarantine_.Has(one_));
  EXPECT_FALSE(quarantine_.CopyEnded(one_)) << "nothing of it is in quarantine";
  EXPECT_EQ(pool_.Counts().held, 0);
}

TEST_F(BlockQuarantineTest, AttemptsOfOneRequestWaitForTheirOwnGrants) {
  quarantine_.Close(one_, {4});
  quarantine_.Add(one_, *pool_.Allocate(2), {4}, 0);
  quarantine_.Close(again_, {9});
  quarantine_.Add(again_, *pool_.Allocate(1), {9}, 0);
  EXPECT_EQ(quarantine_.Blocks().size(), 3u);
  EXPECT_EQ(quarantine_.Closed({9}), again_);
  EXPECT_TRUE(quarantine_.Has(one_));
  EXPECT_EQ(pool_.Counts().quarantined, 2);
  EXPECT_EQ(quarantine_.Closed({4}), one_);
}

TEST_F(BlockQuarantineTest, AGrantOfBlocksThatAreStillInUseMayBeClosed) {
  quarantine_.Close(one_, {4});
  EXPECT_EQ(quarantine_.Closed({4}), one_);
  EXPECT_FALSE(quarantine_.TakeFreed());
  quarantine_.Close(one_, {});
  EXPECT_EQ(asked_.size(), 1u) << "no grant, nothing to close";
}

}  // namespace
}  // namespace skein::scheduler
