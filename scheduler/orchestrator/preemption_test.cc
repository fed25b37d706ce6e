// What the orchestrator learns of preemptions, which its decode instances decide.
#include "scheduler/orchestrator/testing/plain_testing.h"

namespace skein::scheduler {
namespace {

TEST_F(OrchestratorCoreTest, APreemptionIsCountedOnceAndExplained) {
  Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const CallAssign assign = Place(1);
  const auto told = [&](uint32_t preemptions) {
    Report(decode, 2,
           {{.id = {7, 1},
             .epoch = assign.request.epoch,
             .opened = true,
             .preemptions = preemptions}});
    return core_->Totals().degraded[static_cast<size_t>(Degraded::kPreempted)];
  };
  EXPECT_EQ(told(0), 0u);
  EXPECT_EQ(told(1), 1u);
  EXPECT_EQ(told(1), 1u) << "the same one";
  EXPECT_EQ(told(3), 3u);
  const auto explained = core_->Explain("7/1", now_);
  ASSERT_EQ(explained.size(), 1u);
  EXPECT_EQ(explained[0].degraded[static_cast<size_t>(Degraded::kPreempted)], 3u);
}

TEST_F(OrchestratorCoreTest, WhatCanNeverFitIsRefusedWithBothNumbers) {
  Up(Role::kPrefill, 1);
  Up(Role::kDecode, 2);
  const auto failed = Updates<Failed>(Do(SubmitCalled{Spec(1, 4, 37)}));
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status,
            absl::InvalidArgumentError("prompt + max_tokens: 41 tokens fit no decode instance; the "
                                       "largest takes 40"));
  EXPECT_EQ(Of<CallAssign>(Do(SubmitCalled{Spec(2, 4, 36)})).size(), 1u);
}

}  // namespace
}  // namespace skein::scheduler
