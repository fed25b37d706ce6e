#include "scheduler/orchestrator/prefill/abandoned_plans.h"

#include <gtest/gtest.h>

namespace skein::scheduler::orchestrator {
namespace {

constexpr RequestId kOne{7, 1};
constexpr RequestId kTwo{7, 2};

class AbandonedPlansTest : public ::testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(plans_.CheckInvariants().ok()) << plans_.CheckInvariants();
  }
  AbandonedPlans plans_;
};

TEST_F(AbandonedPlansTest, APlanHasEndedWhenEachOfItsInstancesHasLeftIt) {
  plans_.Add(kOne, {5}, {{1}, {2}}, 100);
  plans_.Add(kTwo, {6}, {{2}}, 200);
  EXPECT_TRUE(plans_.Is(kOne, {5}));
  EXPECT_FALSE(plans_.Is(kOne, {6}));
  EXPECT_EQ(plans_.At({2}), (std::vector<RequestId>{kOne, kTwo}));
  EXPECT_FALSE(plans_.Left(kOne, {1}));
  EXPECT_FALSE(plans_.Left(kOne, {1}));  // duplicate
  EXPECT_FALSE(plans_.Left(kOne, {9}));  // never had it
  EXPECT_TRUE(plans_.Left(kOne, {2}));
  EXPECT_FALSE(plans_.Knows(kOne));
  EXPECT_FALSE(plans_.Left(kOne, {2}));
  EXPECT_EQ(plans_.At({2}), (std::vector<RequestId>{kTwo}));
}

TEST_F(AbandonedPlansTest, ALeaseEndsTheWaitAndNamesTheSilent) {
  plans_.Add(kOne, {5}, {{1}, {2}}, 100);
  plans_.Left(kOne, {1});
  EXPECT_FALSE(plans_.TakeOverdue(99).has_value());
  const auto overdue = plans_.TakeOverdue(100);
  ASSERT_TRUE(overdue.has_value());
  EXPECT_EQ(overdue->id, kOne);
  EXPECT_EQ(overdue->silent, (std::set<InstanceId>{{2}}));
  EXPECT_FALSE(plans_.TakeOverdue(1000).has_value());
  EXPECT_TRUE(plans_.At({2}).empty());
}

TEST_F(AbandonedPlansTest, WhoMayComputeThePromptIsKnownUntilItHasLeft) {
  plans_.Add(kOne, {5}, {{{1}, true}, {{2}, false}}, 100);
  EXPECT_TRUE(plans_.MayCompute(kOne, {1}));
  EXPECT_FALSE(plans_.MayCompute(kOne, {2}));
  EXPECT_FALSE(plans_.MayCompute(kTwo, {1}));
  plans_.Left(kOne, {1});
  EXPECT_FALSE(plans_.MayCompute(kOne, {1}));
}

TEST_F(AbandonedPlansTest, AForgottenRequestIsWaitedForNoMore) {
  plans_.Add(kOne, {5}, {{1}}, 100);
  plans_.Forget(kOne);
  plans_.Forget(kTwo);
  EXPECT_EQ(plans_.NextEnd(), kNever);
  EXPECT_FALSE(plans_.Left(kOne, {1}));
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
