#include "scheduler/worker/decode/decode_orders.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/decode_parts.h"

namespace skein::scheduler {
namespace {

using testing::Spec;
using DecodeOrdersTest = testing::DecodePartsTest;

constexpr RequestId kOne{7, 1};

TEST_F(DecodeOrdersTest, AnAnnouncedRequestIsHeldWithoutBlocks) {
  Announce(Spec(1));
  ASSERT_NE(orders_.Find(kOne), nullptr);
  EXPECT_EQ(kv_in_.blocks().held, 0);
  EXPECT_TRUE(membership_.CheckInvariants({{.id = kOne, .epoch = kEpoch}}).ok());
}

TEST_F(DecodeOrdersTest, ItIsWithdrawnWithoutAnEnd) {
  Announce(Spec(1));
  orders_.On(WithdrawCalled{{kOne, {4}}});
  EXPECT_NE(orders_.Find(kOne), nullptr) << "another epoch";
  orders_.On(WithdrawCalled{{kOne, kEpoch}});
  EXPECT_EQ(orders_.Find(kOne), nullptr);
  EXPECT_TRUE(membership_.CheckInvariants({}).ok());
  EXPECT_TRUE(Ended().empty());
  EXPECT_TRUE(absl::IsNotFound(orders_.WhyGone(kOne, kEpoch).status));
}

// It may have been placed here again, under the same epoch, when the answer to the hello comes.
TEST_F(DecodeOrdersTest, WhatTheOrchestratorDoesNotKnowEndsOnlyIfItHadBlocks) {
  Announce(Spec(1));
  Start(2, 6);
  orders_.CancelUnknown({.id = kOne, .epoch = kEpoch});
  EXPECT_EQ(orders_.Find(kOne), nullptr);
  orders_.CancelUnknown({.id = {7, 2}, .epoch = kEpoch});
  EXPECT_NE(sequences_.at({7, 2}).phase, DecodeSequence::Phase::kEnded) << "it opened since";
  EXPECT_TRUE(Ended().empty());
  Announce(Spec(1));
  EXPECT_NE(orders_.Find(kOne), nullptr);
  orders_.CancelUnknown({.id = {7, 2}, .epoch = kEpoch, .opened = true});
  EXPECT_EQ(sequences_.at({7, 2}).phase, DecodeSequence::Phase::kEnded);
}

TEST_F(DecodeOrdersTest, ANewerEpochEndsTheOlderOne) {
  Announce(Spec(1));
  Announce(Spec(1), {6});
  EXPECT_EQ(orders_.Find(kOne)->epoch, Epoch{6});
  const auto ended = Ended();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended.at(1).epoch, kEpoch);
  EXPECT_TRUE(absl::IsFailedPrecondition(orders_.WhyGone(kOne, kEpoch).status));
}

TEST_F(DecodeOrdersTest, AnOlderEpochIsRefused) {
  Announce(Spec(1), {6});
  Announce(Spec(1), kEpoch);
  EXPECT_EQ(orders_.Find(kOne)->epoch, Epoch{6});
  const auto ended = Ended();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended.at(1).epoch, kEpoch);
  EXPECT_TRUE(absl::IsUnavailable(ended.at(1).status));
}

TEST_F(DecodeOrdersTest, ACancelEndsWhatThereIsAndWhatIsStillToCome) {
  Announce(Spec(1));
  Start(2, 6);
  orders_.On(CancelCalled{{kOne, kEpoch, "why"}});
  orders_.On(CancelCalled{{{7, 2}, kEpoch, "why"}});
  orders_.On(CancelCalled{{{7, 3}, kEpoch, "why"}});
  Check();
  EXPECT_EQ(orders_.Find(kOne), nullptr);
  EXPECT_EQ(sequences_.at({7, 2}).phase, DecodeSequence::Phase::kEnded);
  Announce(Spec(3));
  EXPECT_EQ(orders_.Find({7, 3}), nullptr) << "the cancel overtook its announcement";
  EXPECT_EQ(Ended().size(), 3u);
}

TEST_F(DecodeOrdersTest, AnAbortCountsFromAWriterOfThePlanOnly) {
  Announce(Spec(1));
  orders_.On(AbortCalled{{kOne, kEpoch, absl::InternalError("x"), {1}, {99}}});
  EXPECT_NE(orders_.Find(kOne), nullptr) << "the plan names another process";
  orders_.On(AbortCalled{{kOne, kEpoch, absl::InternalError("x"), {1}, kWriter}});
  EXPECT_EQ(orders_.Find(kOne), nullptr);
  EXPECT_TRUE(absl::IsInternal(Ended().at(1).status));
}

TEST_F(DecodeOrdersTest, AnAbortWithoutAPermitCountsFromAnExcusedWriterOnly) {
  Announce(Spec(1));
  const AbortRequest abort = {.id = kOne,
                              .epoch = kEpoch,
                              .reason = absl::InternalError("x"),
                              .prefill = {1},
                              .incarnation = kWriter,
                              .unpermitted = true};
  orders_.On(AbortCalled{abort});
  EXPECT_NE(orders_.Find(kOne), nullptr) << "whoever knows the ids could have sent it";
  AnnounceCalled older = Announcement(Spec(1));
  older.request.excused = {kWriter};
  orders_.On(older);
  orders_.On(AbortCalled{abort});
  EXPECT_EQ(orders_.Find(kOne), nullptr);
}

// They arrive on different connections.
TEST_F(DecodeOrdersTest, AnAbortThatOvertakesTheAnnouncementCountsWhenThatNamesItsWriter) {
  orders_.On(AbortCalled{{kOne, kEpoch, absl::InternalError("x"), {1}, kWriter}});
  EXPECT_TRUE(orders_.HasAborted(kOne, kEpoch, kWriter));
  EXPECT_TRUE(absl::IsNotFound(orders_.WhyGone(kOne, kEpoch).status));
  Announce(Spec(1));
  EXPECT_EQ(orders_.Find(kOne), nullptr);
  EXPECT_TRUE(absl::IsInternal(Ended().at(1).status));
  EXPECT_FALSE(orders_.HasAborted(kOne, kEpoch, kWriter)) << "it has had its effect";
}

TEST_F(DecodeOrdersTest, AnAbortOfAnotherProcessBarsNoRequest) {
  constexpr Epoch kLater{kEpoch.value + 1000};
  orders_.On(AbortCalled{{kOne, kEpoch, absl::InternalError("x"), {1}, {99}}});
  orders_.On(AbortCalled{{kOne, kLater, absl::InternalError("x"), {1}, {99}}});
  orders_.On(AbortCalled{{kOne, kLater, absl::InternalError("x"), {1}, kWriter}});
  Announce(Spec(1));
  ASSERT_NE(orders_.Find(kOne), nullptr);
  EXPECT_EQ(orders_.Find(kOne)->epoch, kEpoch);
  EXPECT_TRUE(Ended().empty());
}

TEST(EarlyAborts, TheLatestAreKept) {
  EarlyAborts aborts;
  for (uint64_t serial = 1; serial <= EarlyAborts::kMax + 1; ++serial) {
    const AbortRequest abort{{7, serial}, {5}, absl::CancelledError("x"), {1}, {2}};
    aborts.Add(abort);
    aborts.Add(abort);  // duplicate
  }
  EXPECT_EQ(aborts.size(), EarlyAborts::kMax);
  EXPECT_TRUE(aborts.CheckInvariants().ok()) << aborts.CheckInvariants();
  EXPECT_FALSE(aborts.Has({7, 1}, {5}, {2}));
  EXPECT_TRUE(aborts.Has({7, 2}, {5}, {2}));
  EXPECT_FALSE(aborts.Take({7, 2}, {5}, {3}).has_value()) << "another writer's";
  EXPECT_TRUE(aborts.Take({7, 2}, {5}, {2}).has_value());
  EXPECT_FALSE(aborts.Has({7, 2}, {5}, {2}));
}

TEST_F(DecodeOrdersTest, AnAnnouncementEndsAtTheDeadlineOfItsRequest) {
  auto spec = Spec(1);
  spec->deadline_us = 50;
  Announce(spec);
  EXPECT_EQ(orders_.NextDeadline(), 50);
  clock_.now = 49;
  orders_.RunTimers();
  EXPECT_NE(orders_.Find(kOne), nullptr);
  clock_.now = 50;
  orders_.RunTimers();
  EXPECT_EQ(orders_.Find(kOne), nullptr);
  EXPECT_EQ(orders_.NextDeadline(), kNever);
  EXPECT_TRUE(absl::IsDeadlineExceeded(Ended().at(1).status));
}

TEST_F(DecodeOrdersTest, WhatSharesAPromptEndsWithTheOneThatHasIt) {
  Announce(Spec(1));
  AnnounceCalled sharer = Announcement(Spec(2));
  sharer.request.prompt_of = kOne;
  orders_.On(sharer);
  EXPECT_EQ(orders_.SharersOf(kOne).size(), 1u);
  orders_.On(CancelCalled{{kOne, kEpoch, "why"}});
  EXPECT_EQ(orders_.Find({7, 2}), nullptr);
  const auto ended = Ended();
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_TRUE(absl::IsUnavailable(ended.at(2).status)) << "it is planned without prompt_of";
}

TEST_F(DecodeOrdersTest, APromptThatIsNotOnItsWayIsNotWaitedFor) {
  AnnounceCalled sharer = Announcement(Spec(2));
  sharer.request.prompt_of = kOne;
  orders_.On(sharer);
  EXPECT_EQ(orders_.Find({7, 2}), nullptr);
  EXPECT_TRUE(absl::IsUnavailable(Ended().at(2).status));
}

}  // namespace
}  // namespace skein::scheduler
