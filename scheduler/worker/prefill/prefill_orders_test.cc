#include "scheduler/worker/prefill/prefill_orders.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/prefill_parts.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::Spec;
using Phase = PrefillRequest::Phase;

constexpr RequestId kOne{7, 1};

class PrefillOrdersTest : public testing::PrefillPartsTest {
 protected:
  // Its blocks stay in use until EndStep.
  void StartStep() { step_ = steps_.Next(requests_, sp_plans_, /*may_probe=*/false, now_)->step; }
  void EndStep() {
    steps_.End(StepDone{step_, {}, {StepResult{}}}, now_);
    kv_out_.On(HandoffStopped{kOne, kEpoch}, now_);
    ends_.MaybeLeave(requests_.at(kOne));
    orders_.TakeSuccessors();
    Check();
  }

  uint64_t step_ = 0;
};

TEST_F(PrefillOrdersTest, AnAssignOnceMoreChangesNothing) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  EXPECT_TRUE(Assign(Spec(1)).ok());
  EXPECT_EQ(requests_.all().size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(Assign(Spec(1), {4}))) << "epoch: stale";
}

TEST_F(PrefillOrdersTest, WhatCannotRunIsRefusedWithTheReason) {
  EXPECT_TRUE(absl::IsInvalidArgument(Assign(Spec(1, 0))));
  EXPECT_TRUE(absl::IsInvalidArgument(Assign(Spec(1, 41)))) << "10 blocks of 4 tokens";
  for (uint64_t serial : {1, 2, 3, 4}) ASSERT_TRUE(Assign(Spec(serial)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(Assign(Spec(5)))) << "max_requests is 4";
  membership_.OrderDrain(true);
  EXPECT_TRUE(absl::IsUnavailable(Assign(Spec(6))));
}

TEST_F(PrefillOrdersTest, ACancelEndsWhatThereIsAndWhatIsStillToCome) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  Cancel(1);
  Cancel(2);
  EXPECT_TRUE(requests_.all().empty());
  EXPECT_TRUE(absl::IsFailedPrecondition(Assign(Spec(2)))) << "the cancel overtook its plan";
  EXPECT_TRUE(Assign(Spec(2), {6}).ok());
}

TEST_F(PrefillOrdersTest, ANewPlanWaitsForTheBlocksOfTheOlderOne) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  Open(1);
  StartStep();
  EXPECT_TRUE(Assign(Spec(1), {6}).ok());
  EXPECT_TRUE(requests_.at(kOne).IsEnding());
  EXPECT_FALSE(orders_.successors().empty());
  EndStep();
  EXPECT_TRUE(orders_.successors().empty());
  EXPECT_EQ(requests_.at(kOne).epoch, Epoch{6});
  const auto ended = Ended();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended.at(1).epoch, kEpoch);
}

TEST_F(PrefillOrdersTest, AWaitingPlanThatIsCancelledNeverBegins) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  Open(1);
  StartStep();
  EXPECT_TRUE(Assign(Spec(1), {6}).ok());
  Cancel(1, {6});
  EXPECT_TRUE(orders_.successors().empty());
  EndStep();
  EXPECT_EQ(requests_.Find(kOne), nullptr);
  EXPECT_EQ(ends_.failed(), 2u);
}

TEST_F(PrefillOrdersTest, ADrainHandsBackWhatHasNotBegun) {
  for (uint64_t serial : {1, 2, 3}) ASSERT_TRUE(Assign(Spec(serial)).ok());
  EXPECT_EQ(requests_.at({7, 3}).phase, Phase::kQueued) << "two are in front at a time";
  orders_.HandBack();
  Check();
  EXPECT_EQ(requests_.Find({7, 3}), nullptr);
  EXPECT_NE(requests_.Find(kOne), nullptr);
  EXPECT_TRUE(absl::IsUnavailable(Ended().at(3).status));
}

TEST_F(PrefillOrdersTest, AStartNamesTheDecodeInstance) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  effects_.clear();
  orders_.On(StartCalled{{kOne, kEpoch, {kEpoch, kDecode, "d:1"}}});
  Check();
  EXPECT_TRUE(requests_.at(kOne).all_have_plan);
  EXPECT_EQ(Of<CallOpenTransfer>(effects_).size(), 1u);
  orders_.On(StartCalled{{{7, 9}, kEpoch, {kEpoch, kDecode, "d:1"}}});
}

}  // namespace
}  // namespace skein::scheduler
