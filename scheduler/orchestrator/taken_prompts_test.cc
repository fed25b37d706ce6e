// OrchestratorCore tells of each prompt that prefill instances are to compute, once.
#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

class TakenPromptsTest : public PlanningTest, public ::testing::WithParamInterface<const char*> {
 protected:
  TakenPromptsTest() : PlanningTest(GetParam()) {}
  // The lengths of those that were taken; all are of model "m".
  std::vector<int64_t> TakenOf(const Effects& effects) {
    std::vector<int64_t> tokens;
    for (const PromptTaken& prompt : Of<PromptTaken>(effects)) {
      EXPECT_EQ(prompt.model, "m");
      tokens.push_back(prompt.tokens);
    }
    return tokens;
  }
};

using Lengths = std::vector<int64_t>;

TEST_P(TakenPromptsTest, APromptIsTakenOnce) {
  const auto prefill = UpPrefill(2);
  Up(Role::kDecode, 2);
  EXPECT_EQ(TakenOf(Submit(1, 2000)), Lengths{2000});
  EXPECT_EQ(TakenOf(Submit(1, 2000)), Lengths{}) << "its router asks how it stands";
  auto choice = Spec(2, 2000);
  choice->prompt_of = RequestId{7, 1};
  EXPECT_EQ(TakenOf(Do(SubmitCalled{choice})), Lengths{}) << "it shares the first one's";
  EXPECT_EQ(TakenOf(Do(SubmitCalled{.spec = Spec(3, 300), .accepted = true})), Lengths{})
      << "a predecessor took it";
  EXPECT_EQ(TakenOf(Submit(4, 300)), Lengths{300});
  Report(prefill[0], {}, {}, /*draining=*/true);
  EXPECT_EQ(TakenOf(Until(now_ + kSecondUs)), Lengths{});
}

TEST_P(TakenPromptsTest, WhatIsRefusedIsNot) {
  EXPECT_EQ(TakenOf(Submit(1, 300)), Lengths{}) << "the model is not known";
  max_requests_ = 1;
  Up(Role::kDecode, 2);
  EXPECT_EQ(TakenOf(Submit(2, 300)), Lengths{}) << "there is no prefill instance";
  total_blocks_ = 60;
  UpPrefill(1);
  EXPECT_EQ(TakenOf(Submit(3, 0)), Lengths{}) << "it is empty";
  EXPECT_EQ(TakenOf(Submit(4, 1000)), Lengths{}) << "no instance has blocks for it";
  auto other = Spec(5, 100);
  other->model = "made up";
  EXPECT_EQ(TakenOf(Do(SubmitCalled{other})), Lengths{});
  EXPECT_EQ(TakenOf(Submit(6, 100)), Lengths{100});
  EXPECT_EQ(TakenOf(Submit(7, 100)), Lengths{100});
  EXPECT_EQ(TakenOf(Submit(8, 100)), Lengths{}) << "there are as many as the instances hold";
}

INSTANTIATE_TEST_SUITE_P(Policies, TakenPromptsTest,
                         ::testing::Values("tetris", "single", "rolling"),
                         [](const auto& policy) { return std::string(policy.param); });

TEST_F(PlanningTest, WithoutAProfileNoPromptIsToldOf) {
  MakeWithoutProfile();
  UpPrefill(1);
  Up(Role::kDecode, 2);
  const Effects submitted = Submit(1, 300);
  EXPECT_EQ(Of<CallAssign>(submitted).size(), 1u);
  EXPECT_TRUE(Of<PromptTaken>(submitted).empty());
}

}  // namespace
}  // namespace skein::scheduler
