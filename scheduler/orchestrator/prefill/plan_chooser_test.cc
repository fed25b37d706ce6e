#include "scheduler/orchestrator/prefill/plan_chooser.h"

#include "scheduler/orchestrator/prefill/testing/prefill_plans_testing.h"

namespace skein::scheduler::orchestrator {
namespace {

using Kind = PlanChoice::Kind;

class PlanChooserTest : public PrefillPoolTest {
 protected:
  PlanChoice Choose(const Request& request) { return chooser_.Choose(request, pools_, Pool(), 0); }
  UnreachablePairs pairs_;
  PlanChooser chooser_{&registry_, &pairs_, 1000};
};

TEST_F(PlanChooserTest, ThePolicyChoosesAndIsTold) {
  const std::vector<InstanceId> up = {Up(1000), Up(1000)};
  const PlanChoice choice = Choose(Submit(1000));
  EXPECT_EQ(choice.kind, Kind::kPlan);
  ASSERT_EQ(choice.chunks.size(), 1u);
  EXPECT_EQ(choice.chunks[0].instances, up);
  EXPECT_NEAR(choice.explanation.ttft_s, 0.551, 1e-9);
  EXPECT_EQ(choice.explanation.queue_s.size(), 2u);
}

TEST_F(PlanChooserTest, OneOfAPairThatDoesNotReachEachOtherIsLeftOut) {
  const std::vector<InstanceId> up = {Up(1000), Up(1000)};
  pairs_.Failed(up[0], up[1], 0);
  EXPECT_EQ(Choose(Submit(1000)).chunks[0].instances, (std::vector<InstanceId>{up[0]}));
  pairs_.RunTimers(UnreachablePairs::kFirstUs);
  EXPECT_EQ(Choose(Submit(1000)).chunks[0].instances, up) << "tried again";
  pairs_.Worked(up[0], up[1]);
  EXPECT_FALSE(pairs_.remembers_any());
}

TEST_F(PlanChooserTest, APairThatIsBarredIsTriedWhereNoOtherWayIsLeft) {
  const std::vector<InstanceId> up = {Up(100), Up(100)};
  pairs_.Failed(up[0], up[1], 0);
  EXPECT_EQ(Choose(Submit(600)).chunks[0].instances, up) << "the prompt needs both memories";
  Request& asked = Submit(100);
  asked.shape = {.instances = 2, .tp = 1};
  EXPECT_EQ(Choose(asked).chunks[0].instances, up);
}

TEST_F(PlanChooserTest, AloneMeansTheInstanceThatIsFreeFirst) {
  const std::vector<InstanceId> up = {Up(1000), Up(1000)};
  ASSERT_NE(Pool(), nullptr);
  Plan(&Submit(10), {up[0]});
  Request& request = Submit(1000);
  request.shape.instances = 1;
  EXPECT_EQ(Choose(request).chunks[0].instances, (std::vector<InstanceId>{up[1]}));
}

TEST_F(PlanChooserTest, APromptThatIsLargerThanOneMemoryIsSharedOrRefused) {
  const std::vector<InstanceId> up = {Up(100), Up(100)};
  Request& large = Submit(600);
  large.shape.instances = 1;
  const PlanChoice shared = Choose(large);
  EXPECT_EQ(shared.kind, Kind::kPlan);
  EXPECT_EQ(shared.chunks[0].instances, up);
  const PlanChoice refused = Choose(Submit(1000));
  EXPECT_EQ(refused.kind, Kind::kFail);
  EXPECT_EQ(
      refused.failure.message(),
      "prompt: 1000 tokens need 250 KV blocks; of 2 prefill instances the largest has 100, all "
      "together have 200");
  EXPECT_TRUE(absl::IsInvalidArgument(refused.failure));
}

TEST_F(PlanChooserTest, APromptThatFitsOnlyInstancesThatAreGoneIsToBeTriedAgain) {
  const std::vector<InstanceId> up = {Up(100), Up(100)};
  registry_.Remove(up[1]);
  const PlanChoice unlucky = Choose(Submit(600));
  EXPECT_EQ(unlucky.kind, Kind::kFail) << "others would wait behind it";
  EXPECT_TRUE(absl::IsUnavailable(unlucky.failure)) << unlucky.failure;
  const PlanChoice refused = Choose(Submit(1000));
  EXPECT_EQ(refused.kind, Kind::kFail);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.failure)) << refused.failure;
  Request& scored = Submit(600);
  auto head = std::make_shared<RequestHead>(*scored.spec);
  head->want_prompt_logprobs = true;
  scored.spec = std::move(head);
  EXPECT_TRUE(absl::IsInvalidArgument(Choose(scored).failure)) << "no instance alone ever held it";
  Up(100);
  EXPECT_EQ(Choose(Submit(600)).kind, Kind::kPlan);
}

TEST_F(PlanChooserTest, AShapeThatIsAskedForIsOfOneNode) {
  const InstanceId elsewhere = Up(100, "b");
  const std::vector<InstanceId> up = {Up(100), Up(100)};
  for (PrefillPools::Pool* pool : {Pool(), static_cast<PrefillPools::Pool*>(nullptr)}) {
    Request& request = Submit(100);
    request.shape = {.instances = 2, .tp = 2};
    const PlanChoice choice = chooser_.Choose(request, pools_, pool, 0);
    ASSERT_EQ(choice.kind, Kind::kPlan);
    ASSERT_EQ(choice.chunks.size(), 1u);
    EXPECT_EQ(choice.chunks[0].tokens, 100);
    EXPECT_EQ(choice.chunks[0].instances, up) << "whatever the policy, with a profile or without";
    EXPECT_NE(elsewhere, up[0]);
  }
}

TEST_F(PlanChooserTest, AShapeWaitsForItsInstancesOrFails) {
  const std::vector<InstanceId> up = {Up(100), Up(100)};
  Up(100, "b");
  Up(100, "b");
  Request& wide = Submit(100);
  wide.shape = {.instances = 4, .tp = 2};
  const PlanChoice refused = Choose(wide);
  EXPECT_EQ(refused.kind, Kind::kFail);
  EXPECT_EQ(refused.failure.message(),
            "plan_instances: the request asks for 4 instances with a tensor-parallel size of 2; "
            "only 2 of one node serve");
  wide.shape.tp = 1;
  EXPECT_EQ(Choose(wide).chunks[0].instances.size(), 4u) << "without tp on several nodes";
  registry_.Avoid(*registry_.Find(up[0]));
  EXPECT_EQ(Choose(wide).kind, Kind::kPark);
  Request& large = Submit(1000);
  large.shape = {.instances = 2, .tp = 2};
  EXPECT_EQ(Choose(large).failure.message(),
            "prompt: 1000 tokens do not fit into the KV blocks of 2 instances with a "
            "tensor-parallel size of 2");
}

TEST_F(PlanChooserTest, WhatNoInstanceTakesNowIsParked) {
  const InstanceId only = Up();
  registry_.Avoid(*registry_.Find(only));
  EXPECT_EQ(Choose(Submit(10)).kind, Kind::kPark);
}

TEST_F(PlanChooserTest, WithoutAPoolTheReportedRatesDecide) {
  const std::vector<InstanceId> up = {Up(), Up()};
  ReportRequest busy{.instance = up[0], .incarnation = {1}};
  busy.load.queued_tokens = 500;
  ASSERT_TRUE(registry_.Report(busy, 0).ok());
  const PlanChoice choice = chooser_.Choose(Submit(10), pools_, nullptr, 0);
  EXPECT_EQ(choice.chunks[0].instances, (std::vector<InstanceId>{up[1]}));
}

TEST_F(PlanChooserTest, OfALargePoolOnlyTheFirstFreeAreTold) {
  std::vector<InstanceId> up;
  for (int i = 0; i < 20; ++i) up.push_back(Up());
  ASSERT_NE(Pool(), nullptr);
  for (int i = 0; i < 6; ++i) Plan(&Submit(100), {up[static_cast<size_t>(i)]});
  const PlanChoice choice = Choose(Submit(10));
  ASSERT_EQ(choice.explanation.queue_s.size(), 16u);
  int busy = 0;
  for (const auto& [id, queue_s] : choice.explanation.queue_s) busy += queue_s > 0 ? 1 : 0;
  EXPECT_EQ(busy, 2);
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
