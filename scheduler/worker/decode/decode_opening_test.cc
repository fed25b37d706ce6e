// How a request gets its blocks in a DecodeCore: announcements, OpenTransfer, writers, epochs.
#include <gtest/gtest.h>

#include "scheduler/worker/testing/decode_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::DecodeCoreTest;
using testing::DecodeTestConfig;
using testing::Of;
using testing::Spec;

TEST_F(DecodeCoreTest, EveryMismatchOfAGrantIsRefusedByName) {
  Announce(Spec(1));
  OpenTransferRequest request{.id = {7, 1},
                              .epoch = {5},
                              .prefill = {1},
                              .incarnation = {2},
                              .shape = DecodeTestConfig().membership.identity.shape};
  request.shape.dtype = DType::kBF16;
  EXPECT_EQ(Of<AnswerOpenTransfer>(Do(OpenTransferCalled{Call(), request}))[0].reply.status,
            absl::FailedPreconditionError("dtype: prefill bf16, decode f32"));
}

TEST_F(DecodeCoreTest, AWriterThatThePlanDoesNotNameCannotEndTheRequest) {
  Announce(Spec(1));
  const AbortCalled abort{{{7, 1}, {5}, absl::CancelledError("stray"), {1}, {99}}};
  Do(abort);  // while it is announced
  const OpenTransferRequest stray{.id = {7, 1},
                                  .epoch = {5},
                                  .prefill = {9},
                                  .incarnation = {99},
                                  .shape = DecodeTestConfig().membership.identity.shape};
  ASSERT_TRUE(OpenTransfer(1).status.ok());
  Do(abort);  // while it receives, by the number of the instance that writes
  EXPECT_TRUE(Of<AnswerOpenTransfer>(Do(OpenTransferCalled{Call(), stray})).empty())
      << "it may be named yet";
  const auto refused = Of<AnswerOpenTransfer>(Until(now_ + DecodeTestConfig().open_wait_us));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].reply.status,
            absl::FailedPreconditionError("prefill_instance: 9 is not among the writers that the "
                                          "orchestrator announced"));
  // Only the plan's writer renews: no lease of another one lapses.
  for (int i = 0; i < 8; ++i) {
    now_ += DecodeTestConfig().lease_us / 2;
    Do(Tick{});
    ASSERT_TRUE(Renew(1).ok()) << i;
  }
  // A repeated announcement names a writer that joins later; its OpenTransfer may come first.
  EXPECT_TRUE(Of<AnswerOpenTransfer>(Do(OpenTransferCalled{Call(), stray})).empty());
  const auto granted =
      Of<AnswerOpenTransfer>(Do(AnnounceCalled{{Spec(1), {5}, {{99}}}, absl::OkStatus()}));
  ASSERT_EQ(granted.size(), 1u);
  EXPECT_TRUE(granted[0].reply.status.ok());
}

TEST_F(DecodeCoreTest, CommitChecksTheBytesOfEveryLayer) {
  Announce(Spec(1));
  OpenTransfer(1);
  EXPECT_EQ(StatusOf(Commit(1, {256, 128})),
            absl::InvalidArgumentError("bytes of layer 1: 128 written, 128 of 256 in all"));
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeCoreTest, RepeatedCallsAreUnderstood) {
  EXPECT_EQ(Of<TellOpened>(Announce(Spec(1))).size(), 0u);
  Announce(Spec(1));
  EXPECT_EQ(OpenTransfer(1).blocks, OpenTransfer(1).blocks);
  Announce(Spec(1));
  EXPECT_EQ(Held(), 2);
  EXPECT_TRUE(StatusOf(Commit(1)).ok());
  EXPECT_TRUE(StatusOf(Commit(1)).ok());
  for (int32_t i = 0; i < 3; ++i) Step(50 + i);
  EXPECT_TRUE(StatusOf(Commit(1)).ok());  // after its end, too
}

TEST_F(DecodeCoreTest, Invariant5AnOlderEpochIsRefused) {
  Announce(Spec(1), 5);
  EXPECT_EQ(Open(Spec(1), 4).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(OpenTransfer(1, 5).status.ok());
  EXPECT_EQ(Open(Spec(1), 4).code(), absl::StatusCode::kFailedPrecondition);
  Do(CancelCalled{{{7, 2}, {8}, "cancelled"}});
  EXPECT_EQ(Open(Spec(2), 8).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(absl::IsUnavailable(ended_.at({7, 2}))) << "the announcement was refused";
  EXPECT_TRUE(Open(Spec(2), 9).ok());
}

TEST_F(DecodeCoreTest, Invariant5AnEpochThatNobodyIssuedEndsNothing) {
  const Epoch forged{UINT64_MAX};
  EXPECT_EQ(core_.CheckEpoch(forged).message(),
            "epoch: 18446744073709551615 exceeds 1099511627776, the last that this worker's "
            "orchestrator can have issued");
  Announce(Spec(1), 5);
  for (uint64_t serial : {1, 2}) {
    Do(CancelCalled{{{7, serial}, forged, "forged"}});
    Do(AbortCalled{{{7, serial}, forged, absl::CancelledError("forged"), {1}, {2}}});
  }
  EXPECT_TRUE(OpenTransfer(1).status.ok());
  EXPECT_TRUE(Open(Spec(2), 5).ok());
}

TEST_F(DecodeCoreTest, Invariant5AnEpochThatEndedStaysSoAfterALateCancelOfAnOlderOne) {
  Announce(Spec(1), 5);
  OpenTransfer(1);
  Attach(1, 50);
  Commit(1);
  for (int32_t i = 0; i < 3; ++i) Step(50 + i);
  EXPECT_EQ(Held(), 0);
  Do(CancelCalled{{{7, 1}, {4}, "late"}});
  EXPECT_TRUE(StatusOf(Commit(1)).ok()) << "duplicate: it ended well";
  EXPECT_EQ(Open(Spec(1), 5).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeCoreTest, RefusesWhatHasNoRoom) {
  EXPECT_EQ(Open(Spec(1, 40, 4)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Open(Spec(2, 30, 4)).ok());
  EXPECT_EQ(Open(Spec(3, 6, 4)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(core_.StateOf({7, 3}), "announced") << "it may be asked for again";
  Do(CancelCalled{{{7, 2}, {5}, "room"}});
  Abort(2, absl::CancelledError("stopped"));
  EXPECT_TRUE(OpenTransfer(3).status.ok());
}

TEST_F(DecodeCoreTest, AGrantWaitsForItsAnnouncementAndNotForEver) {
  EXPECT_EQ(OpenTransfer(1).status, absl::UnknownError("not answered yet"));
  const Effects effects = Announce(Spec(1));
  EXPECT_TRUE(Of<AnswerOpenTransfer>(effects).at(0).reply.status.ok());
  const TransferOpened opened = Of<TellOpened>(effects).at(0).opened;
  EXPECT_EQ(opened.id, (RequestId{7, 1}));
  EXPECT_EQ(opened.epoch, Epoch{5});
  EXPECT_EQ(opened.instance, InstanceId{3});
  EXPECT_EQ(OpenTransfer(2).status, absl::UnknownError("not answered yet"));
  const auto refused = Of<AnswerOpenTransfer>(Until(now_ + DecodeTestConfig().open_wait_us));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].reply.status,
            absl::UnavailableError("the request was not announced here in time"));
}

TEST_F(DecodeCoreTest, WhatIsWithdrawnMayBeAnnouncedAgainUnderTheSameEpoch) {
  writers_live_ = false;
  Announce(Spec(1));
  Do(WithdrawCalled{{{7, 1}, {5}}});
  EXPECT_EQ(core_.StateOf({7, 1}), "");
  EXPECT_EQ(ended_.count({7, 1}), 0u) << "nothing ended";
  EXPECT_TRUE(Open(Spec(1)).ok());
  Do(WithdrawCalled{{{7, 1}, {4}}});
  EXPECT_EQ(core_.StateOf({7, 1}), "granted") << "an older epoch's";
  Do(WithdrawCalled{{{7, 1}, {5}}});  // its lead did not hear that it was opened
  EXPECT_TRUE(absl::IsUnavailable(ended_.at({7, 1})));
  EXPECT_EQ(reasons_.at({7, 1}), FinishReason::kError);
  EXPECT_EQ(core_.Snapshot(now_).blocks.quarantined, 2);
}

TEST_F(DecodeCoreTest, AnAnnouncementIsForgottenWhenItsTimeIsOver) {
  auto spec = Spec(1);
  spec->deadline_us = 700;
  Announce(spec);
  Announce(Spec(2));
  EXPECT_EQ(core_.Snapshot(now_).announced, 2);
  Until(700);
  EXPECT_EQ(core_.Snapshot(now_).announced, 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(ended_.at({7, 1})));
  Until(DecodeTestConfig().request_deadline_us);
  EXPECT_EQ(core_.Snapshot(now_).announced, 0);
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeCoreTest, ANewerEpochIsOpenedWhenTheOlderHasLeftItsStep) {
  ASSERT_TRUE(Open(Spec(1), 5).ok());
  Commit(1);
  Announce(Spec(1), 6);  // the older is in the step in flight
  EXPECT_EQ(OpenTransfer(1, 6).status, absl::UnknownError("not answered yet"));
  const auto answers = Of<AnswerOpenTransfer>(Step(41));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].reply.status.ok());
  EXPECT_EQ(Held(), 2);
}

TEST_F(DecodeCoreTest, WhatTheEngineCannotRunIsToldToItsPrefillInstance) {
  Do(AnnounceCalled{{Spec(1), {5}, {{2}}}, absl::InvalidArgumentError("prompt[3]: 70000")});
  EXPECT_EQ(OpenTransfer(1).status, absl::InvalidArgumentError("prompt[3]: 70000"));
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeCoreTest, SeveralWritersCommitTheirParts) {
  Announce(Spec(1));
  EXPECT_EQ(OpenTransfer(1, 5, 1).blocks.size(), 2u);
  Attach(1, 50);
  EXPECT_TRUE(Of<EmitToken>(Commit(1, {128, 128}, 40, 1)).empty());
  EXPECT_EQ(OpenTransfer(1, 5, 2).blocks.size(), 2u);        // comes when the other has gone
  EXPECT_TRUE(StatusOf(Commit(1, {128, 128}, 40, 1)).ok());  // duplicate: counted once
  EXPECT_EQ(OpenTransfer(1, 5, 1).status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Renew(1, 1).ok());
  EXPECT_EQ(Renew(1, 3).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(StatusOf(Commit(1, {128, 128}, -1, 3)).code(), absl::StatusCode::kFailedPrecondition);
  const Effects effects = Commit(1, {128, 128}, -1, 2);
  EXPECT_TRUE(StatusOf(effects).ok());
  EXPECT_EQ(Of<EmitToken>(effects).size(), 1u);
  EXPECT_EQ(Of<RunStep>(effects).size(), 1u);
  EXPECT_TRUE(StatusOf(Commit(1, {128, 128}, -1, 2)).ok());
}

TEST_F(DecodeCoreTest, MoreBytesThanThePromptOrNoTokenEndTheRequest) {
  Announce(Spec(1));
  Announce(Spec(2));
  for (uint64_t serial : {1, 2}) {
    OpenTransfer(serial, 5, 1);
    OpenTransfer(serial, 5, 2);
    EXPECT_TRUE(StatusOf(Commit(serial, {128, 128}, -1, 1)).ok());
  }
  EXPECT_EQ(StatusOf(Commit(1, {256, 256}, 40, 2)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(StatusOf(Commit(2, {128, 128}, -1, 2)),
            absl::InvalidArgumentError("first token: no writer sent it"));
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeCoreTest, Invariant2BlocksAreFreeWhenNoWriterCanReachThem) {
  writers_live_ = false;
  Announce(Spec(1));
  for (uint64_t writer : {1, 2, 3, 4}) OpenTransfer(1, 5, writer);
  Commit(1, {128, 128}, -1, 1);
  Abort(1, absl::UnavailableError("broke"), 2);
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(core_.Snapshot(now_).blocks.quarantined, 2);
  Commit(1, {128, 128}, -1, 3);  // too late, but its word
  EXPECT_EQ(Held(), 2);
  Until(700);
  ASSERT_TRUE(Open(Spec(1), 6).ok());  // the next epoch does not wait for the fourth
  EXPECT_EQ(Held(), 4);
  EXPECT_EQ(OpenTransfer(1, 5, 2).status.code(), absl::StatusCode::kFailedPrecondition);
  Abort(1, absl::UnavailableError("broke"), 2);
  Do(GrantClosed{{1}});
  EXPECT_EQ(Held(), 2);
}

TEST_F(DecodeCoreTest, ASilentWriterEndsTheRequestAndALateOneIsWaitedForALease) {
  Announce(Spec(1));
  OpenTransfer(1, 5, 1);
  OpenTransfer(1, 5, 2);
  Until(900);
  EXPECT_TRUE(Renew(1, 2).ok());
  Until(1000);
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kUnavailable);
  Announce(Spec(2));
  OpenTransfer(2, 5, 1);
  Until(1500);
  Commit(2, {128, 128}, 40, 1);
  Until(2499);
  EXPECT_EQ(ended_.count({7, 2}), 0u);
  Until(2500);
  EXPECT_EQ(ended_.at({7, 2}).code(), absl::StatusCode::kUnavailable);
}

// A router that attaches ahead of the blocks: the order of the router's message and of the
// orchestrator's and the writer's does not matter.
TEST_F(DecodeCoreTest, ARouterMayAttachBeforeTheBlocksAreTaken) {
  EXPECT_TRUE(Of<EndStream>(AttachAhead(1, 70)).empty()) << "not announced yet";
  ASSERT_TRUE(Open(Spec(1)).ok());
  ASSERT_TRUE(Open(Spec(2)).ok());
  Announce(Spec(3));
  EXPECT_TRUE(Of<EndStream>(AttachAhead(3, 72)).empty()) << "announced";
  ASSERT_TRUE(OpenTransfer(3).status.ok());
  EXPECT_TRUE(Of<EndStream>(AttachAhead(2, 71)).empty()) << "open";
  for (const uint64_t serial : {1, 2, 3}) {
    const auto tokens = Of<EmitToken>(Commit(serial));
    ASSERT_EQ(tokens.size(), 1u) << serial;
    EXPECT_EQ(tokens[0].call, CallId{serial == 1 ? 70u : serial == 2 ? 71u : 72u});
  }
}

TEST_F(DecodeCoreTest, AnAttachmentAheadEndsWithItsRequest) {
  Announce(Spec(1));
  AttachAhead(1, 70);
  const auto second = Of<EndStream>(AttachAhead(1, 71));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].status.code(), absl::StatusCode::kAlreadyExists);
  const auto ended = Of<EndStream>(Do(CancelCalled{{{7, 1}, {5}, "planned anew"}}));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].call, CallId{70});
  EXPECT_EQ(ended[0].status, absl::CancelledError("planned anew"));
  EXPECT_EQ(Of<EndStream>(AttachAhead(1, 72)).size(), 1u) << "it has ended";
}

// The request may come back under the same epoch; its router knows better where it is.
TEST_F(DecodeCoreTest, AnAttachmentAheadOutlivesAWithdrawal) {
  Announce(Spec(1));
  AttachAhead(1, 70);
  EXPECT_TRUE(Of<EndStream>(Do(WithdrawCalled{{{7, 1}, {5}}})).empty());
  ASSERT_TRUE(Open(Spec(1)).ok());
  EXPECT_EQ(Of<EmitToken>(Commit(1)).size(), 1u);
}

TEST_F(DecodeCoreTest, ARouterThatDetachesAheadOfTheBlocksIsForgotten) {
  Announce(Spec(1));
  AttachAhead(1, 70);
  Do(DetachCalled{{70}});
  ASSERT_TRUE(OpenTransfer(1).status.ok());
  EXPECT_TRUE(Of<EmitToken>(Commit(1)).empty());
  EXPECT_EQ(Of<EmitToken>(Attach(1, 71)).size(), 1u);
}

}  // namespace
}  // namespace skein::scheduler
