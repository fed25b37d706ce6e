#include "scheduler/worker/prefill/prefill_ends.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/prefill_parts.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::Spec;
using PrefillEndsTest = testing::PrefillPartsTest;

constexpr RequestId kOne{7, 1};

TEST_F(PrefillEndsTest, WhatNobodyTouchesLeavesAtOnceAndIsToldOnce) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  EXPECT_EQ(requests_.blocks().held, 2);
  ends_.End(requests_.at(kOne), absl::UnavailableError("why"));
  EXPECT_EQ(requests_.Find(kOne), nullptr);
  EXPECT_EQ(requests_.blocks().held, 0);
  EXPECT_EQ(ends_.TakeLeft(), std::vector<RequestId>{kOne});
  EXPECT_TRUE(ends_.TakeLeft().empty());
  EXPECT_TRUE(Of<CallAbort>(effects_).empty()) << "the decode side has granted nothing";
  const auto ended = Ended();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended.at(1).reason, FinishReason::kError);
  EXPECT_EQ(ends_.failed(), 1u);
  EXPECT_TRUE(ends_.tombstones().Covers(kOne, kEpoch));
}

TEST_F(PrefillEndsTest, ARequestInTheStepKeepsItsBlocksUntilTheStepHasEnded) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  Open(1);
  const auto step = steps_.Next(requests_, sp_plans_, /*may_probe=*/false, now_);
  ASSERT_TRUE(step.has_value());
  ends_.End(requests_.at(kOne), absl::CancelledError("why"));
  Check();
  ASSERT_NE(requests_.Find(kOne), nullptr);
  EXPECT_EQ(requests_.blocks().held, 2);
  EXPECT_TRUE(Ended().empty());
  steps_.End(StepDone{step->step, {}, {StepResult{}}}, now_);
  kv_out_.On(HandoffStopped{kOne, kEpoch}, now_);
  ends_.MaybeLeave(requests_.at(kOne));
  EXPECT_EQ(requests_.Find(kOne), nullptr);
  ASSERT_EQ(Of<CallAbort>(effects_).size(), 1u) << "the decode side has granted its blocks";
  EXPECT_EQ(Of<CallAbort>(effects_)[0].endpoint, "d:1");
  EXPECT_EQ(Ended().at(1).reason, FinishReason::kCancelled);
}

TEST_F(PrefillEndsTest, AnErasedRequestIsCommitted) {
  ASSERT_TRUE(Assign(Spec(1)).ok());
  const HandoffPath path{.path = "direct", .transport = "tcp"};
  ends_.Erase(requests_.at(kOne), absl::OkStatus(), path);
  Check();
  EXPECT_EQ(ends_.committed(), 1u);
  EXPECT_EQ(ends_.failed(), 0u);
  EXPECT_TRUE(ends_.tombstones().Committed(kOne, kEpoch));
  const auto ended = Ended();
  EXPECT_EQ(ended.at(1).reason, FinishReason::kStop);
  EXPECT_EQ(ended.at(1).handoff, path);
}

TEST_F(PrefillEndsTest, ThoseOfAKindEndTogether) {
  for (uint64_t serial : {1, 2, 3}) ASSERT_TRUE(Assign(Spec(serial)).ok());
  ends_.EndThose([](const PrefillRequest& request) { return request.id().serial != 2; },
                 absl::UnavailableError("why"));
  Check();
  EXPECT_EQ(requests_.all().size(), 1u);
  EXPECT_EQ(Ended().size(), 2u);
}

}  // namespace
}  // namespace skein::scheduler
