// OrchestratorCore tells once of each traced request that ends, and of no other.
#include <memory>

#include "scheduler/orchestrator/testing/plain_testing.h"

namespace skein::scheduler {
namespace {

class TracedTest : public OrchestratorCoreTest {
 protected:
  static HeadPtr Traced(uint64_t serial) {
    auto spec = std::make_shared<RequestHead>(*Spec(serial));
    spec->traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    return spec;
  }
};

TEST_F(TracedTest, OnlyTracedRequestsAreToldOfWhenTheyEnd) {
  Up(Role::kPrefill, 1);
  Up(Role::kDecode, 2);
  Place(1);
  EXPECT_TRUE(Of<TracedEnded>(Do(Closed({7, 1}))).empty());
  now_ += 10;
  const HeadPtr spec = Traced(2);
  const Effects submitted = Do(SubmitCalled{spec});
  EXPECT_TRUE(Of<TracedEnded>(submitted).empty());
  const CallAssign assign = Of<CallAssign>(submitted).at(0);
  now_ += 5;
  Do(AssignReplied{assign.instance, {7, 2}, assign.request.epoch, {}, assign.request.sequence});
  Opened(assign);
  now_ += 100;
  const auto told = Of<TracedEnded>(Do(Closed({7, 2})));
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].spec, spec);
  EXPECT_EQ(told[0].submitted_us, 10);
  const Explanation& explanation = *told[0].explanation;
  EXPECT_EQ(explanation.ended_us, 105);
  EXPECT_EQ(explanation.state, "client disconnected");
  ASSERT_EQ(explanation.plans.size(), 1u);
  EXPECT_EQ(explanation.plans[0].placed_us, 5);
  EXPECT_EQ(explanation.plans[0].waiting_us, -1);
  EXPECT_EQ(explanation.plans[0].lost_us, -1);
  EXPECT_TRUE(Of<TracedEnded>(Do(Closed({7, 2}))).empty());
}

TEST_F(TracedTest, EachPlanTellsItsOwnTimes) {
  Up(Role::kPrefill, 1);
  const InstanceId first = Up(Role::kDecode, 2);
  const Effects submitted = Do(SubmitCalled{Traced(1)});
  const CallAssign assign = Of<CallAssign>(submitted).at(0);
  Do(AssignReplied{assign.instance, {7, 1}, assign.request.epoch, {}, assign.request.sequence});
  now_ += 3;
  Ask(assign, first, absl::ResourceExhaustedError("full"));
  now_ += 4;
  const InstanceId second = Up(Role::kDecode, 3);
  Do(TransferOpened{second, {7, 1}, assign.request.epoch});
  const auto told = Of<TracedEnded>(Do(Closed({7, 1})));
  ASSERT_EQ(told.size(), 1u);
  const PlanExplanation& plan = told[0].explanation->plans.at(0);
  EXPECT_EQ(plan.refusals, 1u);
  EXPECT_EQ(plan.waiting_us, 3);
  EXPECT_EQ(plan.placed_us, 7);
}

}  // namespace
}  // namespace skein::scheduler
