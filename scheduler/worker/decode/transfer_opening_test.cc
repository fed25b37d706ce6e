#include "scheduler/worker/decode/transfer_opening.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/decode_parts.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::Spec;
using TransferOpeningTest = testing::DecodePartsTest;

constexpr RequestId kOne{7, 1};

TEST_F(TransferOpeningTest, AnAnnouncedRequestGetsTheBlocksOfItsPrompt) {
  Announce(Spec(1, 8));
  ASSERT_TRUE(Open(1).ok()) << Answer();
  EXPECT_EQ(kv_in_.TableOf(kOne)->size(), 3u) << "and that of the first token";
  EXPECT_EQ(orders_.Find(kOne), nullptr);
  EXPECT_EQ(sequences_.at(kOne).phase, DecodeSequence::Phase::kReceiving);
  EXPECT_EQ(Of<TellOpened>(effects_).size(), 1u);
  EXPECT_TRUE(Open(1).ok()) << "a duplicate";
  EXPECT_EQ(kv_in_.blocks().held, 3);
}

TEST_F(TransferOpeningTest, ARouterThatCameAheadOfTheBlocksIsAttached) {
  Announce(Spec(1));
  expected_streams_.Add(kOne, kEpoch, {70});
  ASSERT_TRUE(Open(1).ok()) << Answer();
  EXPECT_EQ(sequences_.at(kOne).stream, DecodeSequence::Stream::kAttached);
  EXPECT_EQ(sequences_.at(kOne).call, CallId{70});
  EXPECT_EQ(expected_streams_.size(), 0u);
}

TEST_F(TransferOpeningTest, ACallThatIsTooEarlyWaitsForItsAnnouncement) {
  EXPECT_TRUE(absl::IsUnknown(Open(1)));
  EXPECT_EQ(opening_.NextDeadline(), kOpenWaitUs);
  Announce(Spec(1));
  opening_.Retry({7, 2});
  EXPECT_TRUE(absl::IsUnknown(Answer())) << "that is another request";
  opening_.Retry(kOne);
  EXPECT_TRUE(Answer().ok()) << Answer();
  EXPECT_EQ(opening_.NextDeadline(), kNever);
}

TEST_F(TransferOpeningTest, ACallThatItsWriterAbortedMeanwhileIsRefusedAtOnce) {
  EXPECT_TRUE(absl::IsUnknown(Open(1)));
  orders_.On(AbortCalled{{kOne, kEpoch, absl::CancelledError("x"), {1}, {99}}});
  opening_.Retry(kOne);
  EXPECT_TRUE(absl::IsUnknown(Answer())) << "that was another process";
  orders_.On(AbortCalled{{kOne, kEpoch, absl::CancelledError("x"), {1}, kWriter}});
  opening_.Retry(kOne);
  EXPECT_TRUE(absl::IsCancelled(Answer()));
}

TEST_F(TransferOpeningTest, ItDoesNotWaitForever) {
  EXPECT_TRUE(absl::IsUnknown(Open(1)));
  clock_.now = kOpenWaitUs - 1;
  opening_.RunTimers();
  EXPECT_TRUE(absl::IsUnknown(Answer()));
  clock_.now = kOpenWaitUs;
  opening_.RunTimers();
  EXPECT_TRUE(absl::IsUnavailable(Answer()));
}

// Of a thief who knows the request's id and its writer's process.
TEST_F(TransferOpeningTest, ACallWithoutAPermitIsRefusedUnlessItsWriterIsExcused) {
  const auto call = [this] {
    opening_.On(OpenTransferCalled{{30},
                                   {.id = kOne,
                                    .epoch = kEpoch,
                                    .prefill = {1},
                                    .incarnation = kWriter,
                                    .shape = membership_.identity().shape,
                                    .unpermitted = true}});
    return Of<AnswerOpenTransfer>(effects_).back().reply.status;
  };
  Announce(Spec(1));
  EXPECT_TRUE(absl::IsPermissionDenied(call()));
  EXPECT_EQ(kv_in_.blocks().held, 0);
  AnnounceCalled older = Announcement(Spec(1));
  older.request.excused = {kWriter};
  orders_.On(older);
  EXPECT_TRUE(call().ok()) << "a prefill-worker of an older build";
}

TEST_F(TransferOpeningTest, AWriterThatIsNotNamedWaitsToBeNamed) {
  Announce(Spec(1));
  EXPECT_TRUE(absl::IsUnknown(Open(1, kEpoch, {99})));
  AnnounceCalled more = Announcement(Spec(1));
  more.request.writers = {{99}};
  orders_.On(more);
  opening_.Retry(kOne);
  EXPECT_TRUE(Answer().ok()) << Answer();
}

TEST_F(TransferOpeningTest, AStaleEpochIsRefusedAtOnce) {
  Announce(Spec(1), {6});
  EXPECT_TRUE(absl::IsFailedPrecondition(Open(1, kEpoch)));
}

TEST_F(TransferOpeningTest, AnotherShapeIsRefusedByName) {
  Announce(Spec(1));
  OpenTransferCalled call = OpenCall(1);
  call.request.shape.num_layers = 9;
  opening_.On(call);
  EXPECT_TRUE(absl::IsFailedPrecondition(Answer()));
  EXPECT_NE(Answer().message().find("num_layers"), std::string::npos) << Answer();
  EXPECT_NE(orders_.Find(kOne), nullptr);
}

TEST_F(TransferOpeningTest, WithoutRoomItIsRefusedAndStaysAnnounced) {
  Announce(Spec(1, 30));
  ASSERT_TRUE(Open(1).ok());
  Announce(Spec(2, 8));
  EXPECT_TRUE(absl::IsResourceExhausted(Open(2)));
  EXPECT_NE(orders_.Find({7, 2}), nullptr);
  EXPECT_EQ(kv_in_.blocks().held, 8);
}

TEST_F(TransferOpeningTest, WhatNeverFitsIsTheCallersFault) {
  Announce(Spec(1, 8, 40));
  const absl::Status status = Open(1);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_NE(status.message().find("48 tokens"), std::string::npos) << status;
}

TEST_F(TransferOpeningTest, NothingEntersWhereNothingMayRun) {
  for (uint64_t serial : {1, 2, 3, 4}) {
    Announce(Spec(serial, 1, 1));
    ASSERT_TRUE(Open(serial).ok()) << serial;
  }
  Announce(Spec(5, 1, 1));
  EXPECT_TRUE(absl::IsResourceExhausted(Open(5))) << "max_requests is 4";
  ends_.End(sequences_.at(kOne), FinishReason::kCancelled, absl::CancelledError(""));
  membership_.StartDrain();
  EXPECT_NE(Open(5).message().find("draining"), std::string::npos);
}

}  // namespace
}  // namespace skein::scheduler
