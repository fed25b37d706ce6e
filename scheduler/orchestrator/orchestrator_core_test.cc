// A request, from its submission to its end.
#include "scheduler/orchestrator/testing/plain_testing.h"

namespace skein::scheduler {
namespace {

TEST_F(OrchestratorCoreTest, ARequestIsPlannedPlacedAndEnded) {
  const InstanceId prefill = Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const CallAssign assign = Submit(1);
  EXPECT_EQ(assign.instance, prefill);
  EXPECT_EQ(GenerationOf(assign.request.epoch.value), kGeneration);
  ASSERT_TRUE(assign.request.placed.has_value());
  EXPECT_EQ(assign.request.placed->decode, decode);
  EXPECT_EQ(core_->Snapshot(now_).assigned, 1);
  EXPECT_EQ(Updates<Placed>(Opened(assign))[0].endpoint, "w:2");
  EXPECT_EQ(core_->Snapshot(now_).placed, 1);
  EXPECT_TRUE(Opened(assign).empty()) << "a resync may repeat it";
  Report(prefill, 1, {}, {{{7, 1}, assign.request.epoch, FinishReason::kStop, {}}});
  const Effects ended =
      Report(decode, 2, {}, {{{7, 1}, assign.request.epoch, FinishReason::kLength, {}}});
  EXPECT_EQ(Ends(ended).size(), 1u);
  EXPECT_TRUE(Of<CallCancel>(ended).empty());
  EXPECT_EQ(core_->Snapshot(0).placed, 0);
}

TEST_F(OrchestratorCoreTest, UnknownModelsAndEmptyPoolsFailAtOnce) {
  const Effects unknown = Do(SubmitCalled{Spec(1)});
  EXPECT_EQ(Updates<Failed>(unknown)[0].status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Ends(unknown).size(), 1u);
  Up(Role::kPrefill, 1);
  const Effects no_decode = Do(SubmitCalled{Spec(1)});
  EXPECT_EQ(Updates<Failed>(no_decode)[0].status.code(), absl::StatusCode::kUnavailable);
  Up(Role::kDecode, 2);
  const Effects too_long = Do(SubmitCalled{Spec(1, 30, 30)});
  EXPECT_EQ(Updates<Failed>(too_long)[0].status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(OrchestratorCoreTest, ARefusedAssignIsTriedElsewhereUnderANewEpoch) {
  const InstanceId first = Up(Role::kPrefill, 1);
  const InstanceId second = Up(Role::kPrefill, 3);
  Up(Role::kDecode, 2);
  const CallAssign one = Of<CallAssign>(Do(SubmitCalled{Spec(1)}))[0];
  EXPECT_EQ(one.instance, first);
  const Effects effects = Do(AssignReplied{first,
                                           {7, 1},
                                           one.request.epoch,
                                           {absl::ResourceExhaustedError("full")},
                                           one.request.sequence});
  const CallAssign two = Of<CallAssign>(effects)[0];
  EXPECT_EQ(two.instance, second);
  EXPECT_GT(two.request.epoch, one.request.epoch);
  EXPECT_EQ(Of<CallCancel>(effects)[0].instance, first);
  const Effects parked = Do(AssignReplied{
      second, {7, 1}, two.request.epoch, {absl::UnavailableError("no")}, two.request.sequence});
  EXPECT_TRUE(Updates<Failed>(parked).empty());
  EXPECT_EQ(core_->Snapshot(now_).parked, 1);
  EXPECT_EQ(Of<CallAssign>(Report(first, 1)).at(0).instance, first);
}

TEST_F(OrchestratorCoreTest, AnEndForTheClientCancelsEverywhere) {
  Up(Role::kPrefill, 1);
  Up(Role::kDecode, 2);
  Place(1);
  const Effects effects = Do(Closed({7, 1}));
  EXPECT_EQ(Of<CallCancel>(effects).size(), 2u);
  EXPECT_TRUE(Of<SendPlanUpdate>(effects).empty());
  EXPECT_TRUE(Do(Closed({7, 1})).empty());
}

TEST_F(OrchestratorCoreTest, ARoutersCloseThatDecodeTellsFirstIsNoFailure) {
  const InstanceId prefill = Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const auto left = [](const CallAssign& placed) {
    return EndedRequest{placed.request.spec->id, placed.request.epoch, FinishReason::kCancelled,
                        absl::CancelledError("the router closed the stream")};
  };
  const CallAssign streaming = Place(1);
  Report(prefill, 1, {}, {{{7, 1}, streaming.request.epoch, FinishReason::kStop, {}}});
  const Effects one = Report(decode, 2, {}, {left(streaming)});
  EXPECT_EQ(Updates<PlanEnded>(one).size(), 1u);
  EXPECT_TRUE(Of<CallCancel>(one).empty());
  EXPECT_EQ(core_->Explain("7/1", now_).at(0).state, "ended by its router");
  EXPECT_TRUE(Do(Closed({7, 1})).empty());
  EXPECT_EQ(core_->Explain("7/1", now_).at(0).state, "client disconnected");

  const CallAssign computing = Place(2);
  const Effects two = Report(decode, 2, {}, {left(computing)});
  EXPECT_EQ(Updates<PlanEnded>(two).size(), 1u);
  EXPECT_TRUE(Updates<Failed>(two).empty());
  ASSERT_EQ(Of<CallCancel>(two).size(), 1u);
  EXPECT_EQ(Of<CallCancel>(two)[0].instance, prefill);
  EXPECT_EQ(core_->Explain("7/2", now_).at(0).state, "cancelled by its router");
  Report(prefill, 1, {}, {{{7, 2}, computing.request.epoch, FinishReason::kStop, {}}});
  EXPECT_EQ(core_->Explain("7/2", now_).at(0).state, "ended by its router");
  EXPECT_EQ(core_->Snapshot(now_).failed, 0u);

  const CallAssign aborted = Place(3);  // by its prefill instance
  EndedRequest end = left(aborted);
  end.reason = FinishReason::kError;
  EXPECT_EQ(Updates<Failed>(Report(decode, 2, {}, {end})).size(), 1u);
  EXPECT_EQ(core_->Snapshot(now_).failed, 1u);
}

TEST_F(OrchestratorCoreTest, AStaleEpochIsRefused) {
  Up(Role::kPrefill, 1);
  Up(Role::kDecode, 2);
  const CallAssign assign = Submit(1);
  const Effects effects = Do(PlaceDecodeCalled{
      Call(), {assign.instance, {1}, {7, 1}, Epoch{assign.request.epoch.value - 1}}});
  EXPECT_EQ(Of<AnswerPlaceDecode>(effects)[0].reply.status.code(),
            absl::StatusCode::kFailedPrecondition);
  const Effects unknown = Do(PlaceDecodeCalled{Call(), {assign.instance, {1}, {7, 9}, {5}}});
  EXPECT_EQ(Of<AnswerPlaceDecode>(unknown)[0].reply.status.code(), absl::StatusCode::kNotFound);
}

// Its router submits it again, after the orchestrator that had accepted it was lost.
TEST_F(OrchestratorCoreTest, ARequestThatIsSubmittedAnewIsCounted) {
  Up(Role::kPrefill, 1);
  Up(Role::kDecode, 2);
  const auto counted = [this] {
    return core_->Totals().degraded[static_cast<size_t>(Degraded::kSubmittedAnew)];
  };
  Do(SubmitCalled{Spec(1)});
  EXPECT_EQ(counted(), 0u);
  Do(SubmitCalled{.spec = Spec(2), .accepted = true});
  EXPECT_EQ(counted(), 1u);
  const Explanation told = core_->Explain("7/2", now_).at(0);
  EXPECT_EQ(told.degraded[static_cast<size_t>(Degraded::kSubmittedAnew)], 1u);
}

TEST_F(OrchestratorCoreTest, ARequestThatMovedHereCountsOnceAndTellsAllItsMoves) {
  Up(Role::kPrefill, 1);
  Up(Role::kDecode, 2);
  constexpr auto kMoved = static_cast<size_t>(Degraded::kMoved);
  Do(SubmitCalled{Spec(1)});
  EXPECT_EQ(core_->Totals().degraded[kMoved], 0u);
  Do(SubmitCalled{.spec = Spec(2), .moves = 2});
  Do(SubmitCalled{.spec = Spec(2), .moves = 2});  // duplicate
  EXPECT_EQ(core_->Totals().degraded[kMoved], 1u);
  EXPECT_EQ(core_->Explain("7/2", now_).at(0).degraded[kMoved], 2u);
  EXPECT_STREQ(NameOf(Degraded::kMoved), "moved");
}

}  // namespace
}  // namespace skein::scheduler
