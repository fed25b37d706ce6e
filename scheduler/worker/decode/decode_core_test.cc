#include "scheduler/worker/decode/decode_core.h"

#include <gtest/gtest.h>

#include <set>

#include "scheduler/base/time_testing.h"
#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::Spec;

constexpr TimeUs kStepTimeoutUs = 200 * kSecondUs;

DecodeConfig Config() {
  DecodeConfig config;
  config.membership.identity = testing::Identity(Role::kDecode, 10);
  config.membership.report_spacing_us = 0;
  config.membership.report_spacing_per_request_us = 0;
  config.memory = "memory";
  config.lease_us = 1000;
  config.grace_us = 500;
  config.attach_lease_us = 5000;
  config.open_wait_us = 300;
  config.engine.step_timeout_us = kStepTimeoutUs;
  config.engine.last_words_us = 3000;
  return config;
}

class DecodeCoreTest : public ::testing::Test {
 protected:
  using Effects = std::vector<DecodeEffect>;

  DecodeCoreTest() {
    Do(Tick{});
    Do(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000}});
  }
  Effects Do(const DecodeEvent& event) {
    Effects effects = core_.Handle(event, now_);
    EXPECT_TRUE(core_.CheckInvariants().ok()) << core_.CheckInvariants();
    for (const CallReport& report : Of<CallReport>(effects)) {
      for (const EndedRequest& ended : report.request.ended) {
        ended_[ended.id] = ended.status;
        reasons_[ended.id] = ended.reason;
        if (ended.engine_failed) failed_under_.insert(ended.id);
        if (ended.unclaimed) unclaimed_.insert(ended.id);
      }
      for (const DecodeEffect& more : Do(ReportReplied{report.request.serial, {}})) {
        effects.push_back(more);
      }
    }
    return effects;
  }
  Effects Until(TimeUs end) {
    Effects all;
    PassUntil(
        end, &now_, [this] { return core_.NextDeadline(); },
        [&] {
          for (const DecodeEffect& effect : Do(Tick{})) all.push_back(effect);
        });
    return all;
  }
  CallId Call() { return {++calls_}; }
  Effects Announce(SpecPtr spec, uint64_t epoch = 5) {
    return Do(AnnounceCalled{{spec, {epoch}, {{2}}}, absl::OkStatus()});
  }
  // Announced, and a writer's first Grant.
  absl::Status Open(SpecPtr spec, uint64_t epoch = 5) {
    Announce(spec, epoch);
    return OpenTransfer(spec->id.serial, epoch).status;
  }
  OpenTransferReply OpenTransfer(uint64_t serial, uint64_t epoch = 5, uint64_t writer = 1) {
    OpenTransferRequest request{.id = {7, serial},
                                .epoch = {epoch},
                                .prefill = {writer},
                                .incarnation = {2},
                                .shape = Config().membership.identity.shape};
    const auto answers = Of<AnswerOpenTransfer>(Do(OpenTransferCalled{Call(), request}));
    return answers.empty() ? OpenTransferReply{absl::UnknownError("not answered yet")}
                           : answers[0].reply;
  }
  absl::Status Renew(uint64_t serial, uint64_t writer = 1) {
    return Of<AnswerRenew>(Do(RenewCalled{Call(), {{7, serial}, {5}, {writer}}}))[0].reply.status;
  }
  Effects Commit(uint64_t serial, std::vector<int64_t> bytes = {256, 256}, int32_t token = 40,
                 uint64_t writer = 1) {
    return Do(CommitCalled{Call(),
                           {.id = {7, serial},
                            .epoch = {5},
                            .bytes_per_layer = std::move(bytes),
                            .has_token = token >= 0,
                            .token = token,
                            .payload = "zero",
                            .prompt_logprobs = "prompt",
                            .prefill = {writer},
                            .times = times_}});
  }
  void Abort(uint64_t serial, absl::Status reason, uint64_t writer = 1, uint64_t epoch = 5) {
    Do(AbortCalled{{{7, serial}, {epoch}, std::move(reason), {writer}}});
  }
  static absl::Status StatusOf(const Effects& commit) {
    return Of<AnswerCommit>(commit)[0].reply.status;
  }
  Effects Attach(uint64_t serial, uint64_t call, uint64_t epoch = 5) {
    return Do(AttachCalled{{call}, {7, serial}, {epoch}});
  }
  Effects Step(int32_t token, size_t sequences = 1) {
    return Do(StepDone{++step_, {}, std::vector<StepResult>(sequences, {token, "p", ""})});
  }
  void Order(bool drain) { Do(OrderDrain{drain}); }
  int64_t Held() { return core_.Snapshot(now_).blocks.held; }

  TimeUs now_ = 0;
  uint64_t calls_ = 1000;
  uint64_t step_ = 0;
  std::map<RequestId, absl::Status> ended_;
  std::map<RequestId, FinishReason> reasons_;
  std::set<RequestId> failed_under_;
  std::set<RequestId> unclaimed_;
  PrefillTimes times_;  // what the next Commit tells
  DecodeCore core_{Config()};
};

TEST_F(DecodeCoreTest, ASequenceRunsFromItsAnnouncementToItsEnd) {
  Announce(Spec(1));
  EXPECT_EQ(core_.StateOf({7, 1}), "announced");
  EXPECT_EQ(Held(), 0);
  const OpenTransferReply grant = OpenTransfer(1);
  EXPECT_EQ(Held(), 3);  // ceil((6 + 4) / 4)
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

TEST_F(DecodeCoreTest, AWholeAnswerThatNobodyTookIsCancelled) {
  Announce(Spec(1));
  OpenTransfer(1);
  Commit(1);
  for (int i = 0; i < 3; ++i) Step(41 + i);
  Do(CancelCalled{{{7, 1}, {5}, "planned anew"}});
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kCancelled);
}

TEST_F(DecodeCoreTest, Invariant2ACancelledGrantIsQuarantinedUntilLeaseAndGrace) {
  Announce(Spec(1));
  OpenTransfer(1);
  Until(400);
  EXPECT_TRUE(Renew(1).ok());
  Do(CancelCalled{{{7, 1}, {5}, "test"}});
  EXPECT_EQ(Held(), 3);
  EXPECT_EQ(core_.Snapshot(now_).blocks.quarantined, 3);
  EXPECT_EQ(Renew(1).code(), absl::StatusCode::kCancelled);
  Until(400 + 1000 + 499);
  EXPECT_EQ(Held(), 3);
  EXPECT_EQ(core_.NextDeadline(), now_ + 1);
  Until(now_ + 1);
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeCoreTest, Invariant2TheWritersWordFreesAtOnce) {
  Announce(Spec(1));
  OpenTransfer(1);
  Do(CancelCalled{{{7, 1}, {5}, "test"}});
  Abort(1, absl::CancelledError("stopped"));
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
  EXPECT_EQ(Held(), 3);
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

TEST_F(DecodeCoreTest, EveryMismatchOfAGrantIsRefusedByName) {
  Announce(Spec(1));
  OpenTransferRequest request{.id = {7, 1},
                              .epoch = {5},
                              .prefill = {1},
                              .incarnation = {2},
                              .shape = Config().membership.identity.shape};
  request.shape.dtype = "bf16";
  EXPECT_EQ(Of<AnswerOpenTransfer>(Do(OpenTransferCalled{Call(), request}))[0].reply.status,
            absl::FailedPreconditionError("dtype: prefill bf16, decode f32"));
}

TEST_F(DecodeCoreTest, AWriterThatThePlanDoesNotNameCannotEndTheRequest) {
  Announce(Spec(1));
  const OpenTransferRequest stray{.id = {7, 1},
                                  .epoch = {5},
                                  .prefill = {9},
                                  .incarnation = {99},
                                  .shape = Config().membership.identity.shape};
  ASSERT_TRUE(OpenTransfer(1).status.ok());
  EXPECT_TRUE(Of<AnswerOpenTransfer>(Do(OpenTransferCalled{Call(), stray})).empty())
      << "it may be named yet";
  const auto refused = Of<AnswerOpenTransfer>(Until(now_ + Config().open_wait_us));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].reply.status,
            absl::FailedPreconditionError("prefill_instance: 9 is not among the writers that the "
                                          "orchestrator announced"));
  // Only the plan's writer renews: no lease of another one lapses.
  for (int i = 0; i < 8; ++i) {
    now_ += Config().lease_us / 2;
    Do(Tick{});
    ASSERT_TRUE(Renew(1).ok()) << i;
  }
  // One that joins later is named by a repeated announcement, which its Grant may overtake.
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
  EXPECT_EQ(Held(), 3);
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
    Do(AbortCalled{{{7, serial}, forged, absl::CancelledError("forged"), {1}}});
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
  EXPECT_TRUE(StatusOf(Commit(1)).ok()) << "said again: it ended well";
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
  const auto refused = Of<AnswerOpenTransfer>(Until(now_ + Config().open_wait_us));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_EQ(refused[0].reply.status,
            absl::UnavailableError("the request was not announced here in time"));
}

TEST_F(DecodeCoreTest, WhatIsWithdrawnMayBeAnnouncedAgainUnderTheSameEpoch) {
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
  EXPECT_EQ(core_.Snapshot(now_).blocks.quarantined, 3);
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
  Until(Config().request_deadline_us);
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
  EXPECT_EQ(Held(), 3);
}

TEST_F(DecodeCoreTest, WhatTheEngineCannotRunIsToldToItsPrefillInstance) {
  Do(AnnounceCalled{{Spec(1), {5}, {{2}}}, absl::InvalidArgumentError("prompt[3]: 70000")});
  EXPECT_EQ(OpenTransfer(1).status, absl::InvalidArgumentError("prompt[3]: 70000"));
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeCoreTest, ASequenceThatFailsEndsItsOwnRequest) {
  uint64_t serial = 0;
  for (const absl::Status& failure :
       {absl::InvalidArgumentError("no token left"), absl::InternalError("NaN")}) {
    const uint64_t bad = ++serial, good = ++serial;
    for (const uint64_t one : {bad, good}) {
      Announce(Spec(one));
      OpenTransfer(one);
      Attach(one, 50 + one);
    }
    Commit(bad);  // a step of its own
    Commit(good);
    Step(41);
    const Effects effects =
        Do(StepDone{++step_, {}, {{.token = 42, .payload = "p"}, {.status = failure}}});
    ASSERT_EQ(Of<EndStream>(effects).size(), 1u);
    EXPECT_EQ(Of<EndStream>(effects)[0].id, (RequestId{7, bad}));
    EXPECT_EQ(Of<EndStream>(effects)[0].status, failure);
    EXPECT_EQ(ended_.at({7, bad}), failure);
    ASSERT_EQ(Of<EmitToken>(effects).size(), 1u);
    EXPECT_EQ(Of<EmitToken>(effects)[0].token, 42);
    EXPECT_TRUE(core_.Snapshot(now_).engine.ok());
    while (ended_.count({7, good}) == 0) Step(43);
    EXPECT_TRUE(ended_.at({7, good}).ok());
    EXPECT_EQ(Held(), 0);
  }
}

TEST_F(DecodeCoreTest, ThreeStepsOfNothingButNanAreAFailedEngine) {
  for (uint64_t serial = 1; serial <= 3; ++serial) {
    EXPECT_TRUE(core_.Snapshot(now_).engine.ok());
    Announce(Spec(serial));
    OpenTransfer(serial);
    Attach(serial, 50 + serial);
    Commit(serial);
    Do(StepDone{++step_, {}, {{.status = absl::InternalError("NaN")}}});
    EXPECT_TRUE(absl::IsInternal(ended_.at({7, serial})));
  }
  EXPECT_FALSE(core_.Snapshot(now_).engine.ok());
}

TEST_F(DecodeCoreTest, AFailedEngineEndsEverythingAndLeaves) {
  Announce(Spec(1));
  OpenTransfer(1);
  Attach(1, 50);
  Commit(1);
  ASSERT_TRUE(Open(Spec(2)).ok());
  Attach(2, 51);
  const Effects effects = Do(StepDone{1, absl::InternalError("device"), {}});
  const absl::Status end = absl::UnavailableError("the engine failed: device");
  EXPECT_EQ(Of<EndStream>(effects)[0].status, end);
  EXPECT_EQ(ended_.at({7, 1}), end);
  EXPECT_EQ(ended_.at({7, 2}), end);
  EXPECT_EQ(failed_under_, std::set<RequestId>({{7, 1}})) << "the other was not in the step";
  EXPECT_EQ(Of<EngineFailed>(effects)[0].status, absl::InternalError("device"));
  EXPECT_EQ(Of<CallUnregister>(effects).size(), 1u);
  Do(Drain{1'000'000});  // a stop in the meantime changes nothing
  EXPECT_EQ(Of<Drained>(Do(UnregisterReplied{})).size(), 1u);
  EXPECT_EQ(core_.Snapshot(now_).engine, absl::InternalError("device"));
}

TEST_F(DecodeCoreTest, AStepThatDoesNotEndFailsTheEngine) {
  Announce(Spec(1));
  OpenTransfer(1);
  Attach(1, 50);
  Commit(1);
  ASSERT_TRUE(Of<EngineFailed>(Until(kStepTimeoutUs - 1)).empty());
  EXPECT_EQ(core_.Snapshot(now_).load.step_age_us, kStepTimeoutUs - 1);
  const Effects effects = Until(kStepTimeoutUs);
  EXPECT_EQ(Of<EngineFailed>(effects)[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Of<EndStream>(effects)[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(failed_under_, std::set<RequestId>({{7, 1}}));
  EXPECT_EQ(Of<CallUnregister>(effects).size(), 1u) << "it does not wait for the step";
  EXPECT_EQ(Of<Drained>(Do(UnregisterReplied{})).size(), 1u);
  EXPECT_TRUE(Do(StepDone{1, {}, {{50, "p", ""}}}).empty()) << "too late";
}

TEST_F(DecodeCoreTest, AFailedEngineWaitsForARouterOnlyAWhile) {
  Announce(Spec(1));
  OpenTransfer(1);
  Commit(1);  // no router has come
  Do(StepDone{1, absl::InternalError("device"), {}});
  const TimeUs failed_us = now_;
  while (Of<CallUnregister>(Until(now_ + 100)).empty()) {
    ASSERT_LE(now_, failed_us + Config().engine.last_words_us);
  }
}

TEST(DecodeCoreProbes, AnIdleEngineIsProbedAndNothingCountsIt) {
  DecodeConfig config = Config();
  config.engine.probe_interval_us = 1000;
  config.engine.probe_block = {10};
  DecodeCore core(config);
  const auto handle = [&core](const DecodeEvent& event, TimeUs now) {
    std::vector<DecodeEffect> effects = core.Handle(event, now);
    EXPECT_TRUE(core.CheckInvariants().ok());
    return effects;
  };
  const std::vector<RunStep> first = Of<RunStep>(handle(Tick{}, 1));
  ASSERT_EQ(first.size(), 1u);
  EXPECT_TRUE(first[0].probe);
  const DecodeSnapshot during = core.Snapshot(5);
  EXPECT_EQ(during.blocks.held, 0);
  EXPECT_EQ(during.load.running_requests, 0);
  EXPECT_EQ(during.load.step_age_us, 4);
  handle(StepDone{first[0].step, {}, {{}}}, 11);
  EXPECT_TRUE(Of<RunStep>(handle(Tick{}, 1010)).empty());
  EXPECT_LE(core.NextDeadline(), 1011);
  const std::vector<RunStep> second = Of<RunStep>(handle(Tick{}, 1011));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(core.Snapshot(1011).probes, 2u);
  EXPECT_EQ(core.Snapshot(1011).steps, 0u);
  EXPECT_EQ(core.Snapshot(1011).load.tokens_per_second, 0);
  const auto effects = handle(StepDone{second[0].step, absl::InternalError("gone"), {}}, 1012);
  EXPECT_EQ(Of<EngineFailed>(effects).size(), 1u);
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

TEST_F(DecodeCoreTest, SeveralWritersCommitTheirParts) {
  Announce(Spec(1));
  EXPECT_EQ(OpenTransfer(1, 5, 1).blocks.size(), 2u);
  Attach(1, 50);
  EXPECT_TRUE(Of<EmitToken>(Commit(1, {128, 128}, 40, 1)).empty());
  EXPECT_EQ(OpenTransfer(1, 5, 2).blocks.size(), 2u);        // comes when the other has gone
  EXPECT_TRUE(StatusOf(Commit(1, {128, 128}, 40, 1)).ok());  // said again: counted once
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
            absl::InvalidArgumentError("first token: no writer brought it"));
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeCoreTest, Invariant2BlocksAreFreeWhenTheLastWriterIsDone) {
  Announce(Spec(1));
  for (uint64_t writer : {1, 2, 3, 4}) OpenTransfer(1, 5, writer);
  Commit(1, {128, 128}, -1, 1);
  Abort(1, absl::UnavailableError("broke"), 2);
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(core_.Snapshot(now_).blocks.quarantined, 3);
  Commit(1, {128, 128}, -1, 3);  // too late, but its word
  EXPECT_EQ(Held(), 3);
  Until(700);
  ASSERT_TRUE(Open(Spec(1), 6).ok());  // the next epoch does not wait for the fourth
  EXPECT_EQ(Held(), 6);
  EXPECT_EQ(OpenTransfer(1, 5, 2).status.code(), absl::StatusCode::kFailedPrecondition);
  Abort(1, absl::UnavailableError("broke"), 2);
  Until(1500);
  EXPECT_EQ(Held(), 3);
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

}  // namespace
}  // namespace skein::scheduler
