// OrchestratorCore and prompts that are larger than the memory of one prefill instance.
#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

class CapacityTest : public PlanningTest, public ::testing::WithParamInterface<const char*> {
 protected:
  // Four instances of 60 blocks of 4 tokens.
  void UpWith(const char* policy) {
    Make(policy);
    Up(Role::kDecode, 2);
    total_blocks_ = 60;
    prefill_ = UpPrefill(4);
  }
  absl::Status StatusOf(const Effects& submitted) {
    const auto failed = Updates<Failed>(submitted);
    return failed.empty() ? absl::OkStatus() : failed[0].status;
  }

  std::vector<InstanceId> prefill_;
};

TEST_P(CapacityTest, AsManyInstancesComputeItAsHaveRoomForIt) {
  UpWith(GetParam());
  const auto assigns = Of<CallAssign>(Submit(1, 400));  // 100 blocks: 50 each
  ASSERT_GE(assigns.size(), 2u);
  EXPECT_EQ(assigns[0].request.chunks.back().members.size(), assigns.size());
  EXPECT_EQ(Of<CallAssign>(Submit(2, 800)).size(), 4u);
}

TEST_P(CapacityTest, WhatNobodyHasRoomForFailsAtOnceByItsLength) {
  UpWith(GetParam());
  const absl::Status status = StatusOf(Submit(1, 1000));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      status.message(),
      "prompt: 1000 tokens need 250 KV blocks; of 4 prefill instances the largest has 60, all "
      "together have 240");
  auto scored = Spec(2, 400);
  scored->want_prompt_logprobs = true;  // by one instance alone
  EXPECT_EQ(StatusOf(Do(SubmitCalled{scored})).code(), absl::StatusCode::kInvalidArgument);
  // One of the four may be back soon.
  Report(prefill_[0], {}, {}, /*draining=*/true);
  EXPECT_TRUE(absl::IsUnavailable(StatusOf(Submit(3, 800))));
}

TEST_P(CapacityTest, ALargeInstanceIsFoundAmongSmallOnes) {
  UpWith(GetParam());
  total_blocks_ = 300;
  const InstanceId large = UpPrefill(1)[0];
  const auto assigns = Of<CallAssign>(Submit(1, 1000));
  ASSERT_EQ(assigns.size(), 1u);
  EXPECT_EQ(assigns[0].instance, large);
}

INSTANTIATE_TEST_SUITE_P(Policies, CapacityTest,
                         ::testing::Values("tetris", "single", "rolling", "greedy", "fixed1"),
                         [](const auto& policy) { return std::string(policy.param); });

}  // namespace
}  // namespace skein::scheduler
