#include "scheduler/worker/decode/decode_core.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/decode_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::DecodeCoreTest;
using testing::Of;
using testing::Spec;

TEST_F(DecodeCoreTest, ASequenceRunsFromItsAnnouncementToItsEnd) {
  Announce(Spec(1));
  EXPECT_EQ(core_.StateOf({7, 1}), "announced");
  EXPECT_EQ(Held(), 0);
  const OpenTransferReply grant = OpenTransfer(1);
  EXPECT_EQ(Held(), 2);  // of the prompt, with room for the first tokens
  EXPECT_EQ(grant.layout, KvLayout{1});
  EXPECT_TRUE(Attach(1, 50).empty());
  EXPECT_EQ(grant.blocks, (std::vector<BlockId>{{0}, {1}}));  // those of the prompt
  EXPECT_EQ(grant.memory, "memory");
  Effects effects = Commit(1);
  EXPECT_TRUE(StatusOf(effects).ok());
  EmitToken zero = Of<EmitToken>(effects)[0];
  EXPECT_EQ(zero.index, 0);
  EXPECT_EQ(zero.payload, "zero");
  EXPECT_EQ(zero.prompt_logprobs, "prompt");
  const RunStep step = Of<RunStep>(effects)[0];
  EXPECT_EQ(step.sequences[0].position, 6);
  EXPECT_EQ(step.sequences[0].TokenAt(6), 40);
  EXPECT_EQ(step.sequences[0].token_index, 1);
  effects = Step(41);
  EXPECT_EQ(Of<EmitToken>(effects)[0].index, 1);
  EXPECT_EQ(Of<EmitToken>(effects)[0].prompt_logprobs, "");
  EXPECT_EQ(Of<RunStep>(effects).size(), 1u);  // the engine never idles
  Step(42);
  effects = Step(43);
  const EndStream end = Of<EndStream>(effects)[0];
  EXPECT_EQ(end.reason, FinishReason::kLength);
  EXPECT_EQ(end.output_tokens, 4);
  EXPECT_EQ(Held(), 0);
  EXPECT_TRUE(ended_.at({7, 1}).ok());
}

TEST_F(DecodeCoreTest, AStopTokenEndsTheStreamUnlessItComesTooEarly) {
  auto spec = Spec(1);
  spec->stop_token_ids = {99};
  spec->min_tokens = 2;
  Announce(spec);
  OpenTransfer(1);
  Attach(1, 50);
  EXPECT_EQ(Of<EmitToken>(Commit(1, {256, 256}, 99)).size(), 1u);  // index 0 < min_tokens
  Step(7);
  const Effects effects = Step(99);
  EXPECT_TRUE(Of<EmitToken>(effects).empty());
  const EndStream end = Of<EndStream>(effects)[0];
  EXPECT_EQ(end.reason, FinishReason::kStop);
  EXPECT_EQ(end.stop_token, 99);
  EXPECT_EQ(end.output_tokens, 3);
}

TEST_F(DecodeCoreTest, ScoringAloneEndsAtTheCommit) {
  Announce(Spec(1, 6, 0));
  OpenTransfer(1);
  Attach(1, 50);
  const Effects effects = Do(CommitCalled{Call(),
                                          {.id = {7, 1},
                                           .epoch = {5},
                                           .bytes_per_layer = {256, 256},
                                           .has_token = false,
                                           .payload = "",
                                           .prompt_logprobs = "prompt",
                                           .prefill = {1}}});
  EXPECT_TRUE(StatusOf(effects).ok());
  const EndStream end = Of<EndStream>(effects)[0];
  EXPECT_EQ(end.reason, FinishReason::kLength);
  EXPECT_EQ(end.prompt_logprobs, "prompt");
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeCoreTest, TokensWaitForTheirRouterAndAreThenSentWithoutAGap) {
  Announce(Spec(1));
  OpenTransfer(1);
  Commit(1);
  Step(41);
  Step(42);
  Step(43);  // finished; nobody came yet
  EXPECT_EQ(Held(), 0);
  const Effects effects = Attach(1, 50);
  ASSERT_EQ(Of<EmitToken>(effects).size(), 4u);
  for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(Of<EmitToken>(effects)[i].index, i);
  EXPECT_EQ(Of<EndStream>(effects).size(), 1u);
  EXPECT_EQ(Of<EndStream>(Attach(1, 51))[0].status.code(), absl::StatusCode::kCancelled);
}

TEST_F(DecodeCoreTest, ASequenceWhoseRouterNeverComesEnds) {
  Announce(Spec(1));
  OpenTransfer(1);
  Commit(1);
  Until(5000);
  Step(41);
  EXPECT_EQ(Held(), 0);
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kDeadlineExceeded);
}

// The orchestrator can plan it anew as long as it does not take it for ended.
TEST_F(DecodeCoreTest, AWholeAnswerHasEndedWhenARouterTakesIt) {
  for (const uint64_t serial : {1, 2}) {
    Announce(Spec(serial));
    OpenTransfer(serial);
    Commit(serial);
    for (int i = 0; i < 3; ++i) Step(41 + i);
  }
  EXPECT_EQ(Held(), 0);
  EXPECT_EQ(ended_.count({7, 1}), 0u);
  Attach(1, 50);
  EXPECT_TRUE(ended_.at({7, 1}).ok());
  EXPECT_EQ(reasons_.at({7, 1}), FinishReason::kLength);
  EXPECT_EQ(ended_.count({7, 2}), 0u);
  Until(5000);
  EXPECT_EQ(ended_.at({7, 2}),
            absl::DeadlineExceededError("no router attached to the token stream within 5 ms"));
  EXPECT_EQ(unclaimed_, std::set<RequestId>({{7, 2}}));
  EXPECT_EQ(core_.StateOf({7, 2}), "");
}

TEST_F(DecodeCoreTest, AWholeAnswerThatWaitsForItsRouterIsNotEndedByItsAnnouncementOnceMore) {
  ASSERT_TRUE(Open(Spec(1)).ok());
  Commit(1);
  for (int i = 0; i < 3; ++i) Step(41 + i);
  Announce(Spec(1));
  EXPECT_EQ(ended_.count({7, 1}), 0u);
  EXPECT_EQ(Of<EmitToken>(Attach(1, 50)).size(), 4u);
  EXPECT_TRUE(ended_.at({7, 1}).ok());
}

TEST_F(DecodeCoreTest, AWholeAnswerThatNobodyTookIsCancelled) {
  Announce(Spec(1));
  OpenTransfer(1);
  Commit(1);
  for (int i = 0; i < 3; ++i) Step(41 + i);
  Do(CancelCalled{{{7, 1}, {5}, "planned anew"}});
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kCancelled);
}

// Its router is gone, as far as the orchestrator can tell. Whether it reached this instance before
// is known here only.
TEST_F(DecodeCoreTest, WhatNoRouterHasAttachedToMayBeCancelledAlone) {
  for (const uint64_t serial : {1, 2, 3}) {
    Announce(Spec(serial));
    OpenTransfer(serial);
  }
  Commit(1);
  Commit(2);
  Attach(2, 50);
  Step(41);
  for (const uint64_t serial : {1, 2, 3, 4}) {
    Do(CancelCalled{{{7, serial}, {5}, "its router has gone", /*unless_claimed=*/true}});
  }
  EXPECT_EQ(unclaimed_, (std::set<RequestId>{{7, 1}, {7, 3}}));
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ended_.at({7, 3}).code(), absl::StatusCode::kCancelled) << "its KV was on its way";
  EXPECT_EQ(ended_.count({7, 2}), 0u);
  EXPECT_EQ(core_.StateOf({7, 2}), "running");
}

TEST_F(DecodeCoreTest, Invariant2ACancelledGrantIsQuarantinedUntilItIsClosed) {
  writers_live_ = false;
  Announce(Spec(1));
  OpenTransfer(1);
  Until(400);
  EXPECT_TRUE(Renew(1).ok());
  const Effects cancelled = Do(CancelCalled{{{7, 1}, {5}, "test"}});
  EXPECT_EQ(Held(), 2);
  EXPECT_EQ(core_.Snapshot(now_).blocks.quarantined, 2);
  EXPECT_EQ(Renew(1).code(), absl::StatusCode::kCancelled);
  Until(100'000);
  EXPECT_EQ(Held(), 2);
  Do(GrantClosed{Of<CloseGrant>(cancelled)[0].grant});
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeCoreTest, Invariant2TheWritersWordOverAnotherConnectionFreesNothing) {
  writers_live_ = false;
  Announce(Spec(1));
  OpenTransfer(1);
  Do(CancelCalled{{{7, 1}, {5}, "test"}});
  Abort(1, absl::CancelledError("stopped"));
  EXPECT_EQ(Held(), 2) << "its bytes may come later";
  Do(GrantClosed{{1}});
  EXPECT_EQ(Held(), 0);
  Announce(Spec(2));  // without a grant there is no writer
  Do(CancelCalled{{{7, 2}, {5}, "test"}});
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeCoreTest, ALeaseThatEndsEndsTheRequestHonestly) {
  Announce(Spec(1));
  OpenTransfer(1);
  Attach(1, 50);
  const EndStream end = Of<EndStream>(Until(1000))[0];
  EXPECT_EQ(end.status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(StatusOf(Commit(1)).code(), absl::StatusCode::kCancelled);  // too late,
  EXPECT_EQ(Held(), 0);                                                 // but the writer is done
}

TEST_F(DecodeCoreTest, Invariant3ACancelDuringAStepTakesEffectAtItsEnd) {
  Announce(Spec(1));
  OpenTransfer(1);
  Attach(1, 50);
  Commit(1);
  Do(DetachCalled{{50}});
  EXPECT_EQ(Held(), 2);
  const Effects effects = Step(41);
  EXPECT_TRUE(Of<EmitToken>(effects).empty());
  EXPECT_EQ(Held(), 0);
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kCancelled);
}

TEST_F(DecodeCoreTest, ARoutersCloseIsToldApartFromAWritersAbort) {
  for (uint64_t serial : {1, 2}) {
    Announce(Spec(serial));
    OpenTransfer(serial);
    Attach(serial, 50 + serial);
  }
  Do(DetachCalled{{51}});
  Abort(2, absl::CancelledError("cancelled"));
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(ended_.at({7, 2}).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(reasons_.at({7, 1}), FinishReason::kCancelled);
  EXPECT_EQ(reasons_.at({7, 2}), FinishReason::kError);
}

TEST_F(DecodeCoreTest, AnAbortAfterTheCommitEndsNothing) {
  Announce(Spec(1));
  OpenTransfer(1);
  Attach(1, 50);
  Commit(1);
  Abort(1, absl::UnavailableError("the commit was not answered"));
  EXPECT_EQ(ended_.count({7, 1}), 0u);
  EXPECT_EQ(Of<EmitToken>(Step(41)).size(), 1u);
}

TEST_F(DecodeCoreTest, ADrainLetsStreamsFinishUntilItsGraceEnds) {
  Announce(Spec(1));
  OpenTransfer(1);
  Attach(1, 50);
  Commit(1);
  Do(Drain{2000});
  EXPECT_EQ(Open(Spec(2)).code(), absl::StatusCode::kResourceExhausted);
  Effects effects = Until(2000);
  EXPECT_EQ(Of<EndStream>(effects)[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Of<CallUnregister>(effects).empty());  // the step is still in flight
  effects = Step(41);
  EXPECT_EQ(Of<CallUnregister>(effects).size(), 1u);
}

TEST_F(DecodeCoreTest, TheTimesOfPrefillGoWithTheFirstTokenOnly) {
  Announce(Spec(1));
  OpenTransfer(1, 5, 1);
  OpenTransfer(1, 5, 2);
  Attach(1, 50);
  times_ = {10, 200, 5};  // of the lead: it was there from the first chunk on
  Commit(1, {128, 128}, -1, 1);
  times_ = {150, 60, 9};
  const EmitToken zero = Of<EmitToken>(Commit(1, {128, 128}, 40, 2))[0];
  ASSERT_TRUE(zero.times.has_value());
  EXPECT_EQ(*zero.times, (PrefillTimes{10, 200, 9}));
  EXPECT_FALSE(Of<EmitToken>(Step(41))[0].times.has_value());
}

TEST_F(DecodeCoreTest, WithoutATokenTheTimesGoWithTheEnd) {
  auto scored = std::make_shared<RequestSpec>(*Spec(1));
  scored->max_tokens = 0;
  Announce(scored);
  OpenTransfer(1);
  Attach(1, 50);
  times_ = {1, 2, 3};
  const EndStream end = Of<EndStream>(Commit(1, {256, 256}, -1))[0];
  ASSERT_TRUE(end.times.has_value());
  EXPECT_EQ(*end.times, (PrefillTimes{1, 2, 3}));
}

TEST_F(DecodeCoreTest, AnOrderedDrainHasNoEndAndIsUndoneAStopLeavesAllTheSame) {
  Announce(Spec(1));
  OpenTransfer(1);
  Attach(1, 50);
  Commit(1);
  Order(true);
  EXPECT_EQ(Open(Spec(2)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Of<EndStream>(Until(100 * kSecondUs)).empty()) << "the stream goes on";
  Order(false);
  EXPECT_TRUE(Open(Spec(2)).ok());
  Order(true);
  Do(Drain{2000});  // SIGTERM while an operator's order holds
  Order(false);     // which does not keep it
  EXPECT_EQ(Open(Spec(3)).code(), absl::StatusCode::kResourceExhausted);
}

// Whatever came meanwhile is heard before anything ends, however long the standstill was.
TEST_F(DecodeCoreTest, AStalledProcessDoesNotTakeItsOwnSilenceForTheWriters) {
  Announce(Spec(1));
  OpenTransfer(1, 5, 1);
  OpenTransfer(1, 5, 2);
  for (int standstills = 0; standstills < 5; ++standstills) {
    now_ += 50'000;
    Do(Tick{});  // before the words of writers and router are read
    EXPECT_TRUE(Renew(1, 1).ok());
    EXPECT_TRUE(Renew(1, 2).ok());
    Do(Tick{});
  }
  now_ += 50'000;
  Commit(1, {128, 128}, 40, 1);
  EXPECT_EQ(StatusOf(Commit(1, {128, 128}, -1, 2)), absl::OkStatus());
  now_ += 50'000;
  Do(Tick{});
  EXPECT_EQ(ended_.count({7, 1}), 0u);
  EXPECT_TRUE(Of<EndStream>(Attach(1, 50)).empty());
}

TEST_F(DecodeCoreTest, TheWaitForTheFirstDecodeStepIsToldOnceForEachRequest) {
  ASSERT_TRUE(Open(Spec(1)).ok());
  ASSERT_TRUE(Open(Spec(2)).ok());
  now_ = 100;
  Commit(1);
  now_ = 110;
  Commit(2);  // the step of the first one runs
  now_ = 125;
  const auto first = Of<DecodeBegan>(Step(41));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].spec->id, (RequestId{7, 1}));
  EXPECT_EQ(first[0].waited_us, 0);
  now_ = 140;
  const auto second = Of<DecodeBegan>(Step(42, 2));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].spec->id, (RequestId{7, 2}));
  EXPECT_EQ(second[0].waited_us, 15) << "from 110 to 125, when its step began";
  EXPECT_TRUE(Of<DecodeBegan>(Step(43, 2)).empty());
}

TEST_F(DecodeCoreTest, ARequestThatNeedsNoDecodeStepWaitsForNone) {
  ASSERT_TRUE(Open(Spec(1, 6, 1)).ok());
  EXPECT_TRUE(Of<DecodeBegan>(Commit(1)).empty());
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeCoreTest, TheEngineForgetsASequenceWhenItIsInNoFurtherStep) {
  ASSERT_TRUE(Open(Spec(1)).ok());
  Commit(1);  // it is in the step that begins
  EXPECT_TRUE(Of<ReleaseSequence>(Do(CancelCalled{{{7, 1}, {5}, "test"}})).empty());
  const auto released = Of<ReleaseSequence>(Step(41));
  ASSERT_EQ(released.size(), 1u);
  EXPECT_EQ(released[0].id, (RequestId{7, 1}));
  EXPECT_EQ(released[0].epoch, Epoch{5});
  ASSERT_TRUE(Open(Spec(2)).ok());
  EXPECT_TRUE(Of<ReleaseSequence>(Do(CancelCalled{{{7, 2}, {5}, "test"}})).empty())
      << "it was in no step";
}

}  // namespace
}  // namespace skein::scheduler
