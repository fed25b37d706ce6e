// OrchestratorCore with a profile that has tensor shapes: which (SP, TP) the chunks of a plan get.
#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

class TensorPlansTest : public PlanningTest {
 protected:
  TensorPlansTest() { Make("tetris"); }

  void Make(const char* policy, const ShapeLimits& limits = {.tp_max = 4}, int node_size = 4) {
    latency_ = TensorTestLatency().Within(limits);
    node_size_ = node_size;
    PlanningTest::Make(policy);
  }
  static double EstimateMs(const CallAssign& assign) {
    return static_cast<double>(assign.request.chunks.at(0).estimated_us) / kMillisecondUs;
  }
  ChunkExplanation Explained(size_t chunk = 0) {
    return core_->Explain("cmpl-1", now_).at(0).plans.back().chunks.at(chunk);
  }
  static std::vector<uint32_t> TpsOf(const CallAssign& assign) {
    std::vector<uint32_t> tps;
    for (const PlanChunk& chunk : assign.request.chunks) tps.push_back(chunk.tp);
    return tps;
  }
};

TEST_F(TensorPlansTest, AShortChunkRunsInTpAndALongOneInLessOfIt) {
  UpPrefill(4);
  Up(Role::kDecode, 2);
  const auto brief = Place(1, 100);
  ASSERT_EQ(brief.size(), 4u);
  for (const CallAssign& assign : brief) EXPECT_EQ(TpsOf(assign), (std::vector<uint32_t>{4}));
  EXPECT_NEAR(EstimateMs(brief[0]), 31, 0.01);
  EXPECT_EQ(Explained().tp, 4);
  EXPECT_DOUBLE_EQ(Explained().estimated_end_s, 0.031);
  for (const CallAssign& assign : brief) Report(assign.instance, {}, {Ended(assign)});
  now_ += kSecondUs;
  const auto lengthy = Of<CallAssign>(Submit(2, 2000));
  ASSERT_EQ(lengthy.size(), 4u);
  for (const CallAssign& assign : lengthy) EXPECT_EQ(TpsOf(assign), (std::vector<uint32_t>{2}));
  EXPECT_NEAR(EstimateMs(lengthy[0]), 601.5, 0.01);
}

TEST_F(TensorPlansTest, ATensorGroupIsOfOneNode) {
  Make("tetris", {}, /*node_size=*/1);
  const InstanceId a = Up(Role::kPrefill, 101, "a");
  const InstanceId b = Up(Role::kPrefill, 102, "b");
  Up(Role::kDecode, 2);
  const auto assigns = Of<CallAssign>(Submit(1, 2000));
  ASSERT_EQ(assigns.size(), 2u);
  EXPECT_EQ(TpsOf(assigns[0]), (std::vector<uint32_t>{1}));
  EXPECT_NEAR(EstimateMs(assigns[0]), 1101, 0.01);
  EXPECT_NEAR(Explained().estimated_end_s, 1.101, 1e-12);
  EXPECT_NEAR(core_->Explain("cmpl-1", now_)[0].plans[0].ttft_s, 1.101, 1e-12);
  EXPECT_NEAR(QueueSeconds(a), 1.101, 1e-9);
  EXPECT_NEAR(QueueSeconds(b), 1.101, 1e-9);
}

// Some instances of the pool could run (1, 2): half a millisecond less. Those of the plan cannot.
TEST_F(TensorPlansTest, AnEstimateIsThatOfTheShapeOfItsInstances) {
  Make("tetris", {}, /*node_size=*/1);
  for (const uint64_t incarnation : {101, 102}) Up(Role::kPrefill, incarnation, "a");
  const InstanceId other = Up(Role::kPrefill, 103, "b");
  Up(Role::kDecode, 2);
  ASSERT_EQ(Of<CallAssign>(Do(SubmitCalled{Spec(1, 9000), PrefillShape{.instances = 1}})).size(),
            1u);
  const auto assigns = Of<CallAssign>(Submit(2, 2000));
  ASSERT_EQ(assigns.size(), 2u);
  EXPECT_EQ(TpsOf(assigns[0]), (std::vector<uint32_t>{1}));
  EXPECT_NEAR(EstimateMs(assigns[0]), 1101, 0.01);
  EXPECT_NEAR(core_->Explain("cmpl-2", now_)[0].plans[0].ttft_s, 1.101, 1e-12);
  EXPECT_NEAR(QueueSeconds(other), 1.101, 1e-9);
}

// The largest smaller tp that they can run: two on each node.
TEST_F(TensorPlansTest, OfTwoNodesEachIsATensorGroup) {
  Make("tetris", {}, /*node_size=*/2);
  const InstanceId a1 = Up(Role::kPrefill, 101, "a");
  const InstanceId b1 = Up(Role::kPrefill, 102, "b");
  const InstanceId a2 = Up(Role::kPrefill, 103, "a");
  const InstanceId b2 = Up(Role::kPrefill, 104, "b");
  Up(Role::kDecode, 2);
  const auto assigns = Of<CallAssign>(Submit(1, 100));
  ASSERT_EQ(assigns.size(), 4u);
  EXPECT_EQ(TpsOf(assigns[0]), (std::vector<uint32_t>{2}));
  std::vector<InstanceId> ranks;
  for (const PlanMember& member : assigns[0].request.members) ranks.push_back(member.instance);
  EXPECT_EQ(ranks, (std::vector<InstanceId>{a1, a2, b1, b2}));
  EXPECT_EQ(Explained().instances, ranks);
  EXPECT_NEAR(EstimateMs(assigns[0]), 31.5, 0.01) << "as (2, 2)";
}

TEST_F(TensorPlansTest, InstancesThatNameNoNodeAreNoTensorGroup) {
  for (const uint64_t incarnation : {101, 102}) Up(Role::kPrefill, incarnation, "");
  Up(Role::kDecode, 2);
  const auto assigns = Of<CallAssign>(Submit(1, 2000));
  ASSERT_EQ(assigns.size(), 2u);
  EXPECT_EQ(TpsOf(assigns[0]), (std::vector<uint32_t>{1}));
}

// Also where that is slower than another one: nothing was estimated.
TEST_F(TensorPlansTest, AShapeThatIsAskedForHasNoEstimate) {
  UpPrefill(4);
  Up(Role::kDecode, 2);
  const auto assigns =
      Of<CallAssign>(Do(SubmitCalled{Spec(1, 100), PrefillShape{.instances = 4, .tp = 2}}));
  ASSERT_EQ(assigns.size(), 4u);
  const PlanExplanation plan = core_->Explain("cmpl-1", now_).at(0).plans.at(0);
  EXPECT_EQ(plan.ttft_s, 0);
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].tp, 2);
  EXPECT_EQ(plan.chunks[0].instances.size(), 4u);
  EXPECT_EQ(plan.chunks[0].estimated_end_s, 0);
}

TEST_F(TensorPlansTest, APinnedTpIsClampedToTheInstances) {
  Make("fixed2", {.tp_max = 4, .pinned_tp = 4});
  UpPrefill(2);
  Up(Role::kDecode, 2);
  EXPECT_EQ(TpsOf(Of<CallAssign>(Submit(1, 2000)).at(0)), (std::vector<uint32_t>{2}));
  Make("tetris", {.tp_max = 4, .pinned_tp = 1});
  UpPrefill(4);
  Up(Role::kDecode, 3);
  const auto assigns = Of<CallAssign>(Submit(1, 100));
  EXPECT_EQ(TpsOf(assigns.at(0)), (std::vector<uint32_t>{1}));
  EXPECT_NEAR(EstimateMs(assigns[0]), 32, 0.01);
}

// As RollingPlansTest's plan that begins on two instances and goes on with four.
TEST_F(TensorPlansTest, LaterAssignsOfAPlanRepeatTheShapesOfItsChunks) {
  Make("rolling");
  UpPrefill(2);
  const InstanceId decode = Up(Role::kDecode, 2);
  const auto before = Place(100, 8000);
  ASSERT_EQ(before.size(), 2u);
  UpPrefill(2);
  const auto first = Place(1, 40000);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(TpsOf(first[0]), (std::vector<uint32_t>{2}));
  for (int i = 0; i < 2; ++i) {
    now_ += 2200 * kMillisecondUs;
    for (const CallAssign& assign : first) Report(assign.instance, {Held(assign)});
    for (const CallAssign& assign : before) Report(assign.instance, {Held(assign)});
    Report(decode, {Held(first[0]), Held(before[0])});
  }
  for (const CallAssign& assign : before) Report(assign.instance, {}, {Ended(assign)});
  Report(first[0].instance, {Held(first[0], 1)});
  const auto second = Of<CallAssign>(Report(first[1].instance, {Held(first[1], 1)}));
  ASSERT_EQ(second.size(), 4u);
  for (const CallAssign& assign : second) {
    EXPECT_EQ(TpsOf(assign), (std::vector<uint32_t>{2, 2}));
    EXPECT_EQ(assign.request.chunks[0].members, first[0].request.chunks[0].members);
  }
  EXPECT_EQ(Explained(1).tp, 2);
}

}  // namespace
}  // namespace skein::scheduler
