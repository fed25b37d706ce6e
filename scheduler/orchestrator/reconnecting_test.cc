// Streams of workers break and begin anew: what was lost is sent again or planned anew, what nobody
// knows is cancelled, nothing that ended is lost.
#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

class ReconnectingTest : public PlanningTest {
 protected:
  ReconnectingTest() : prefill_(UpPrefill(4)), decode_(Up(Role::kDecode, 2)) {}

  // The stream of the instance breaks, and another one begins with this state.
  Effects Again(InstanceId instance, std::vector<HeldRequest> held = {},
                std::vector<EndedRequest> ended = {}) {
    Break(instance);
    return ConnectAgain(instance, std::move(held), std::move(ended));
  }
  Effects ConnectAgain(InstanceId instance, std::vector<HeldRequest> held = {},
                       std::vector<EndedRequest> ended = {}) {
    const Role role = instance == decode_ ? Role::kDecode : Role::kPrefill;
    Effects effects = Connect(role, incarnations_[instance].value, "a", held, ended);
    EXPECT_EQ(Of<AnswerRegister>(effects)[0].reply.instance, instance);
    streams_[instance] = {calls_};
    return effects;
  }
  static std::vector<HeldRequest> CancelledBy(const Effects& effects) {
    return Of<AnswerRegister>(effects)[0].reply.cancel;
  }

  std::vector<InstanceId> prefill_;
  InstanceId decode_;
};

TEST_F(ReconnectingTest, WithoutAStreamAnInstanceGetsNothing) {
  const auto assigns = Place(1, 4000);
  Break(prefill_[1]);
  for (const CallAssign& assign : Of<CallAssign>(Submit(2, 4000))) {
    EXPECT_NE(assign.instance, prefill_[1]);
  }
  for (const CallCancel& cancel : Of<CallCancel>(Do(Closed({7, 1})))) {
    EXPECT_NE(cancel.instance, prefill_[1]);
  }
  const Effects again = ConnectAgain(prefill_[1], {Held(assigns[1])});
  ASSERT_EQ(CancelledBy(again).size(), 1u);
  EXPECT_EQ(CancelledBy(again)[0].epoch, assigns[1].request.epoch);
}

TEST_F(ReconnectingTest, WhatNobodyKnowsIsCancelledButNotAPredecessors) {
  const auto cancelled = CancelledBy(
      Again(decode_, {{{7, 50}, {FirstNumberOf(1) + 5}}, {{7, 51}, {FirstNumberOf(1) - 5}}}));
  ASSERT_EQ(cancelled.size(), 1u);
  EXPECT_EQ(cancelled[0].id, (RequestId{7, 50}));
}

TEST_F(ReconnectingTest, WhatAPredecessorAnnouncedAndIsElsewhereNowIsCancelled) {
  Place(1, 4000);  // at decode_
  const InstanceId other = Up(Role::kDecode, 3);
  const auto cancelled_with = [&](bool opened) {
    Break(other);
    const HeldRequest held = {.id = {7, 1}, .epoch = {FirstNumberOf(1) - 5}, .opened = opened};
    const Effects effects = Connect(Role::kDecode, incarnations_[other].value, "a", {held},
                                    std::vector<EndedRequest>{});
    streams_[other] = {calls_};
    return CancelledBy(effects).size();
  };
  EXPECT_EQ(cancelled_with(false), 1u);
  EXPECT_EQ(cancelled_with(true), 0u) << "it may be streaming";
}

TEST_F(ReconnectingTest, AnAssignThatWasLostIsPlannedAnewAndNotCounted) {
  const auto assigns = Of<CallAssign>(Submit(1, 4000));
  ASSERT_EQ(assigns.size(), 4u);
  for (size_t i = 0; i < 3; ++i) Answer(assigns[i]);
  EXPECT_EQ(Of<CallCancel>(Again(prefill_[3])).size(), 5u);  // at the decode instance, too
  Effects effects;
  for (size_t i = 0; i < 3; ++i) {
    effects = Report(prefill_[i], {}, {Ended(assigns[i], absl::CancelledError("c"))});
  }
  EXPECT_EQ(Of<CallAssign>(effects).size(), 4u);  // it may be among them
}

TEST_F(ReconnectingTest, AnAssignWhoseAnswerWasLostIsAccepted) {
  auto spec = Spec(1, 400);
  spec->want_prompt_logprobs = true;  // alone
  const CallAssign assign = Of<CallAssign>(Do(SubmitCalled{spec})).at(0);
  EXPECT_TRUE(Of<CallAssign>(Again(assign.instance, {Held(assign)})).empty());
  EXPECT_EQ(core_->Snapshot(now_).assigned, 1);
}

// Its tokens may have been sent: a new plan would end the request.
TEST_F(ReconnectingTest, AnSpPlanWhoseAnswerWasLostIsAcceptedIfAllItsChunksCame) {
  const auto assigns = Of<CallAssign>(Submit(1, 4000));
  for (size_t i = 1; i < 4; ++i) Answer(assigns[i]);
  EXPECT_TRUE(Of<CallStart>(Opened(decode_, assigns[0])).empty());
  const Effects again = Again(prefill_[0], {Held(assigns[0])});
  EXPECT_EQ(Of<CallStart>(again).size(), 4u);
  EXPECT_TRUE(Of<CallCancel>(again).empty());
  EXPECT_EQ(core_->Snapshot(now_).replans, 0u);
  HeldRequest without_chunks = Held(assigns[0]);
  without_chunks.chunks_known = 0;
  EXPECT_EQ(Of<CallCancel>(Again(prefill_[0], {without_chunks})).size(), 5u);
}

TEST_F(ReconnectingTest, AnAnnouncementThatWasLostIsMadeAgain) {
  const Effects submitted = Submit(1, 4000);
  const CallAnnounce lost = Of<CallAnnounce>(submitted).at(0);
  const auto announced = Of<CallAnnounce>(Again(decode_));
  ASSERT_EQ(announced.size(), 1u);
  EXPECT_EQ(announced[0].instance, decode_);
  EXPECT_EQ(announced[0].request.epoch, lost.request.epoch);
  EXPECT_EQ(announced[0].request.writers, lost.request.writers);
  EXPECT_EQ(core_->Snapshot(now_).replans, 0u);
  for (const CallAssign& assign : Of<CallAssign>(submitted)) Answer(assign);
  EXPECT_EQ(Of<CallStart>(Opened(decode_, Of<CallAssign>(submitted)[0])).size(), 4u);
}

// A plain plan has one writer, which was named from the beginning.
TEST_F(ReconnectingTest, AnAnnouncementThatArrivedIsRepeatedOnlyForThePlansOfSeveral) {
  const auto several = Of<CallAssign>(Submit(1, 4000));
  auto spec = Spec(2, 400);
  spec->want_prompt_logprobs = true;  // alone
  const CallAssign alone = Of<CallAssign>(Do(SubmitCalled{spec})).at(0);
  const auto again = Of<CallAnnounce>(Again(decode_, {Held(several[0]), Held(alone)}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].request.spec->id, (RequestId{7, 1}));
}

TEST_F(ReconnectingTest, ATransferWhoseOpeningWasNotHeardIsOpen) {
  const auto assigns = Of<CallAssign>(Submit(1, 4000));
  for (const CallAssign& assign : assigns) Answer(assign);
  HeldRequest held = Held(assigns[0]);
  held.opened = true;
  const Effects again = Again(decode_, {held});
  EXPECT_EQ(Updates<skein::scheduler::Placed>(again).size(), 1u);
  EXPECT_EQ(Of<CallStart>(again).size(), 4u);
  EXPECT_EQ(core_->Snapshot(now_).placed, 1);
}

TEST_F(ReconnectingTest, AnAnnouncementOfAnInstanceWithoutAStreamWaitsForItsNext) {
  Break(decode_);
  const Effects submitted = Submit(1, 4000);  // it is not placeable: the place is withheld
  const auto assigns = Of<CallAssign>(submitted);
  EXPECT_FALSE(assigns[0].request.placed.has_value());
  for (const CallAssign& assign : assigns) Answer(assign);
  EXPECT_EQ(PlacedAt(Ask(assigns[0])), InstanceId{});
  EXPECT_EQ(PlacedAt(ConnectAgain(decode_)), decode_);
}

TEST_F(ReconnectingTest, AMemberThatMayNotKnowThatAllHaveThePlanIsToldAgain) {
  const auto assigns = Place(1, 4000);
  const auto starts = Of<CallStart>(Again(prefill_[2], {Held(assigns[2])}));
  ASSERT_EQ(starts.size(), 1u);
  EXPECT_EQ(starts[0].request.placed.decode, decode_);
  EXPECT_EQ(Of<CallStart>(Again(prefill_[0], {Held(assigns[0])})).size(), 1u);
  EXPECT_EQ(PlacedAt(Ask(assigns[0])), decode_);  // the lead asks again
}

// An answer to a question of the stream before would be of no use.
TEST_F(ReconnectingTest, AQuestionGoesWithItsStream) {
  free_blocks_ = 0;
  Report(decode_);
  const auto assigns = Of<CallAssign>(Submit(1, 4000));
  for (const CallAssign& assign : assigns) Answer(assign);
  const PlaceDecodeCalled asked{streams_[prefill_[0]],
                                {prefill_[0], {1}, {7, 1}, assigns[0].request.epoch}};
  EXPECT_TRUE(Of<AnswerPlaceDecode>(Do(asked)).empty());
  Break(prefill_[0]);
  free_blocks_ = 100000;
  EXPECT_TRUE(Of<AnswerPlaceDecode>(Report(decode_)).empty());
  ConnectAgain(prefill_[0], {Held(assigns[0])});
  const auto answers =
      Of<AnswerPlaceDecode>(Do(PlaceDecodeCalled{streams_[prefill_[0]], asked.request}));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].reply.status.ok());
  EXPECT_EQ(answers[0].call, streams_[prefill_[0]]);
}

TEST_F(ReconnectingTest, WhatEndedMeanwhileCountsOnce) {
  const auto assigns = Place(1, 4000);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(Of<CallCancel>(Again(prefill_[i], {}, {Ended(assigns[i])})).empty());
  }
  const Effects effects = Again(decode_, {}, {Ended(assigns[0])});
  EXPECT_EQ(Ends(effects).size(), 1u);
  EXPECT_TRUE(Updates<Failed>(effects).empty());
  EXPECT_TRUE(Ends(Again(decode_, {}, {Ended(assigns[0])})).empty());
}

// The router may fetch the answer only where it is told that it is.
TEST_F(ReconnectingTest, WhatEndedBeforeItsOpeningWasHeardIsPlacedFirst) {
  const auto assigns = Of<CallAssign>(Submit(1, 4000));
  const Effects again = Again(decode_, {}, {Ended(assigns[0])});
  const auto updates = Of<SendPlanUpdate>(again);
  ASSERT_EQ(updates.size(), 2u);
  EXPECT_TRUE(std::holds_alternative<skein::scheduler::Placed>(updates[0].update));
  EXPECT_TRUE(std::holds_alternative<PlanEnded>(updates[1].update));
}

TEST_F(ReconnectingTest, AStreamThatIsMissingInTheReplanIsNotWaitedFor) {
  const auto assigns = Place(1, 4000);
  Break(prefill_[3]);
  Report(prefill_[0], {}, {Ended(assigns[0], absl::UnavailableError("collective"))});
  Report(prefill_[1], {}, {Ended(assigns[1], absl::CancelledError("c"))});
  Report(prefill_[2], {}, {Ended(assigns[2], absl::CancelledError("c"))});
  EXPECT_EQ(Of<CallAssign>(ConnectAgain(prefill_[3])).size(), 4u);
}

TEST_F(ReconnectingTest, ASequenceThatItsDecodeInstanceHasLostEnds) {
  const auto assigns = Place(1, 4000);
  for (size_t i = 0; i < 4; ++i) Report(prefill_[i], {}, {Ended(assigns[i])});
  EXPECT_TRUE(absl::IsUnavailable(Updates<Failed>(Again(decode_)).at(0).status));
}

TEST_F(ReconnectingTest, ASecondStreamTakesThePlaceOfTheFirst) {
  const auto assigns = Place(1, 4000);
  const CallId former = streams_[prefill_[1]];
  const Effects effects = ConnectAgain(prefill_[1], {Held(assigns[1])});
  ASSERT_EQ(Of<CloseWorker>(effects).size(), 1u);
  EXPECT_EQ(Of<CloseWorker>(effects)[0].call, former);
  EXPECT_TRUE(Do(WorkerDisconnected{former}).empty());
  EXPECT_EQ(Of<CallCancel>(Do(Closed({7, 1}))).size(), 5u);  // it is connected
}

// A cut held it up: the worker has opened another stream since, and was sent a request on it.
TEST_F(ReconnectingTest, AHelloThatArrivesLateChangesNothing) {
  const auto assigns = Place(1, 4000);
  for (size_t i = 0; i < 4; ++i) Report(prefill_[i], {}, {Ended(assigns[i])});
  for (const InstanceId id : {prefill_[0], decode_}) {
    const Role role = id == decode_ ? Role::kDecode : Role::kPrefill;
    RegisterCalled late{Call(), {.identity = Identity(role, incarnations_[id].value)}};
    late.request.stream = 1;
    const Effects effects = Do(late);
    ASSERT_EQ(effects.size(), 1u) << "the stream stands, nothing is sent";
    const AnswerRegister refused = Of<AnswerRegister>(effects).at(0);
    EXPECT_EQ(refused.call, late.call);
    EXPECT_TRUE(absl::IsFailedPrecondition(refused.reply.status)) << refused.reply.status;
  }
  EXPECT_EQ(core_->StateOf({7, 1}), "placed");
  EXPECT_EQ(Of<CallCancel>(Do(Closed({7, 1}))).size(), 1u) << "it is connected";
}

TEST_F(ReconnectingTest, TheStreamOfAnInstanceWhoseLeaseEndedIsClosed) {
  const CallId stream = streams_[prefill_[1]];
  for (int i = 0; i < 4; ++i) {
    Until(now_ + kSecondUs);
    for (const InstanceId id : {prefill_[0], prefill_[2], prefill_[3], decode_}) Report(id);
  }
  EXPECT_EQ(core_->Snapshot(now_).instances_lost, 1u);
  const Effects effects = Connect(Role::kPrefill, incarnations_[prefill_[1]].value);
  EXPECT_NE(Of<AnswerRegister>(effects)[0].reply.instance, prefill_[1]);
  EXPECT_TRUE(Do(WorkerDisconnected{stream}).empty());
}

}  // namespace
}  // namespace skein::scheduler
