#include "scheduler/worker/prefill/prefill_core.h"

#include <gtest/gtest.h>

#include <set>

#include "scheduler/worker/steps/nan_steps.h"
#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::Spec;

constexpr TimeUs kStepTimeoutUs = 600'000;
constexpr TimeUs kLastWordsUs = 3000;

PrefillConfig Config() {
  PrefillConfig config;
  config.membership.identity = testing::Identity(Role::kPrefill, 10);
  config.membership.report_spacing_us = 0;
  config.membership.report_spacing_per_request_us = 0;
  config.batch = {.max_batch_tokens = 4};
  config.begin_ahead = 2;
  config.retry_us = 50;
  config.begin_give_up_us = 100'000;
  config.engine.step_timeout_us = kStepTimeoutUs;
  config.engine.last_words_us = kLastWordsUs;
  return config;
}

class PrefillCoreTest : public ::testing::Test {
 protected:
  using Effects = std::vector<PrefillEffect>;

  PrefillCoreTest() {
    Do(Tick{});
    Do(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}});
  }
  Effects Do(const PrefillEvent& event) {
    Effects effects = core_.Handle(event, now_);
    EXPECT_TRUE(core_.CheckInvariants().ok()) << core_.CheckInvariants();
    for (const CallReport& report : Of<CallReport>(effects)) {
      for (const EndedRequest& ended : report.request.ended) {
        ended_[ended.id] = ended.status;
        handoffs_[ended.id] = ended.handoff;
        if (ended.engine_failed) failed_under_.insert(ended.id);
      }
      for (const PrefillEffect& more : Do(ReportReplied{report.request.serial, {}})) {
        effects.push_back(more);
      }
    }
    return effects;
  }
  Effects Assign(SpecPtr spec, uint64_t sequence = 0, uint64_t epoch = 5) {
    return Do(AssignCalled{{++calls_}, {spec, {epoch}, {sequence == 0 ? calls_ : sequence}}});
  }
  static absl::Status StatusOf(const Effects& assign) {
    return Of<AnswerAssign>(assign)[0].reply.status;
  }
  // What it asked the orchestrator is answered.
  Effects Place(uint64_t serial) {
    return Do(PlaceDecodeReplied{{7, serial}, {5}, {{}, {{5}, {4}, "d:1"}}});
  }
  Effects Grant(uint64_t serial, size_t blocks = 2, TimeUs lease_us = 900) {
    std::vector<BlockId> granted;
    for (size_t i = 0; i < blocks; ++i) granted.push_back({static_cast<int32_t>(8 + i)});
    return Do(OpenTransferReplied{{7, serial}, {5}, {{}, granted, {}, "memory", lease_us}});
  }
  // Its transfer is opened.
  Effects Open(uint64_t serial, size_t blocks = 2, TimeUs lease_us = 900) {
    Effects effects = Place(serial);
    for (PrefillEffect& effect : Grant(serial, blocks, lease_us)) effects.push_back(effect);
    return effects;
  }
  Effects Step(int32_t token = 40, size_t sequences = 1) {
    return Do(StepDone{++step_, {}, std::vector<StepResult>(sequences, {token, "p", "l"})});
  }
  void Order(bool drain) { Do(OrderDrain{drain}); }
  int64_t Held() { return core_.Snapshot(now_).blocks.held; }

  TimeUs now_ = 0;
  uint64_t calls_ = 0;
  uint64_t step_ = 0;
  std::map<RequestId, absl::Status> ended_;
  std::map<RequestId, HandoffPath> handoffs_;
  std::set<RequestId> failed_under_;
  PrefillCore core_{Config()};
};

TEST_F(PrefillCoreTest, APromptIsComputedHandedOverAndCommitted) {
  Effects effects = Assign(Spec(1));
  EXPECT_TRUE(StatusOf(effects).ok());
  EXPECT_EQ(Of<CallPlaceDecode>(effects).size(), 1u);
  EXPECT_EQ(Held(), 2);
  effects = Place(1);
  EXPECT_EQ(Of<CallOpenTransfer>(effects)[0].endpoint, "d:1");
  EXPECT_TRUE(Of<RunStep>(effects).empty()) << "the decode side may have no room";
  now_ = 100;
  effects = Grant(1);
  EXPECT_EQ(Of<OpenHandoff>(effects)[0].blocks.size(), 2u);
  EXPECT_EQ(Of<RunStep>(effects)[0].sequences[0].count, 4);
  const StartHandoff start = Of<StartHandoff>(effects)[0];
  EXPECT_EQ(start.remote_blocks, (std::vector<BlockId>{{8}, {9}}));
  EXPECT_EQ(start.post_until_us, 900);  // from the sending of the call, at 0
  effects = Step();
  EXPECT_EQ(Of<RunStep>(effects)[0].sequences[0].position, 4);  // the engine never idles
  EXPECT_TRUE(Of<RunStep>(effects)[0].sequences[0].sample);
  EXPECT_TRUE(Of<CallCommit>(Step()).empty());
  const HandoffPath path{.path = "direct", .transport = "tcp"};
  effects = Do(HandoffDone{{7, 1}, {5}, {256, 256}, path});
  const CallCommit commit = Of<CallCommit>(effects)[0];
  EXPECT_EQ(commit.request.token, 40);
  EXPECT_EQ(commit.request.prompt_logprobs, "ll");
  EXPECT_EQ(commit.request.bytes_per_layer, (std::vector<int64_t>{256, 256}));
  EXPECT_EQ(Held(), 2);  // until the decode side has taken over
  Do(CommitReplied{{7, 1}, {5}, {}});
  EXPECT_EQ(Held(), 0);
  EXPECT_TRUE(ended_.at({7, 1}).ok());
  EXPECT_EQ(handoffs_.at({7, 1}), path) << "told with the end";
}

// Queue: until its first step, whoever it waits for; handoff: what of it the steps did not hide.
TEST_F(PrefillCoreTest, ACommitTellsHowLongThePromptTook) {
  Assign(Spec(1));
  now_ = 20;
  Place(1);
  now_ = 30;
  Grant(1);  // its first step starts
  Step();
  now_ = 75;
  EXPECT_TRUE(Of<CallCommit>(Step()).empty());
  now_ = 90;
  const CallCommit commit = Of<CallCommit>(Do(HandoffDone{{7, 1}, {5}, {256, 256}}))[0];
  EXPECT_EQ(commit.request.times, (PrefillTimes{30, 45, 15}));
  now_ = 100;
  Do(CommitReplied{{7, 1}, {5}, {absl::UnavailableError("lost")}});
  now_ = 150;
  EXPECT_EQ(Of<CallCommit>(Do(Tick{}))[0].request.times, (PrefillTimes{30, 45, 15}));
}

TEST_F(PrefillCoreTest, Invariant3RequestsAskInPlanOrderAndNoneOvertakes) {
  Assign(Spec(1), 10);
  Assign(Spec(2), 20);
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Spec(3), 40)).empty());  // begin_ahead is 2
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Spec(4), 30)).empty());
  const Effects effects = Do(CancelCalled{{{7, 1}, {5}, "test"}});
  ASSERT_EQ(Of<CallPlaceDecode>(effects).size(), 1u);
  EXPECT_EQ(Of<CallPlaceDecode>(effects)[0].request.id, (RequestId{7, 4}));
}

TEST_F(PrefillCoreTest, ShortPromptsAskAsFarAheadAsTwoStepsHaveRoomFor) {
  for (uint64_t i = 1; i <= 8; ++i) {  // of one token; a step has room for 4
    EXPECT_EQ(Of<CallPlaceDecode>(Assign(Spec(i, 1))).size(), 1u) << i;
  }
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Spec(9, 1))).empty());
}

TEST(PrefillReportTest, ItsRegistrationSaysHowItCutsChunksAndHowManyRequestsItHolds) {
  PrefillCore core(Config());
  const auto effects = core.Handle(Tick{}, 0);
  EXPECT_EQ(Of<CallRegister>(effects)[0].request.identity.max_batch_tokens,
            Config().batch.max_batch_tokens);
  EXPECT_EQ(Of<CallRegister>(effects)[0].request.identity.max_requests, Config().max_requests);
}

TEST(PrefillReportTest, ReportsAreSpacedByWhatTheLastOneNamed) {
  PrefillConfig config = Config();
  config.membership.report_spacing_us = 100;
  config.membership.report_spacing_per_request_us = 50;
  PrefillCore core(config);
  core.Handle(Tick{}, 0);
  core.Handle(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}}, 0);
  core.Handle(AssignCalled{{1}, {Spec(1), {5}, {1}}}, 0);
  core.Handle(AssignCalled{{2}, {Spec(2), {5}, {2}}}, 0);
  core.Handle(AssignCalled{{3}, {Spec(3), {5}, {3}}}, 0);
  const auto reports = Of<CallReport>(core.Handle(CancelCalled{{{7, 1}, {5}, "test"}}, 0));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].request.held.size(), 2u);
  EXPECT_EQ(reports[0].request.ended.size(), 1u);
  core.Handle(ReportReplied{1, {}}, 0);
  core.Handle(CancelCalled{{{7, 2}, {5}, "test"}}, 0);
  EXPECT_EQ(core.NextDeadline(), 100 + 3 * 50);
  const auto next = Of<CallReport>(core.Handle(Tick{}, 250));
  ASSERT_EQ(next.size(), 1u);
  EXPECT_TRUE(next[0].request.held.empty()) << "the third does nothing";
}

TEST_F(PrefillCoreTest, ALargePromptThatWaitsForBlocksIsNotOvertaken) {
  Assign(Spec(1, 24), 10);  // 6 of 10 blocks
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Spec(2, 24), 20)).empty());
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Spec(3, 4), 30)).empty());
}

TEST_F(PrefillCoreTest, AsksAgainWhenThereIsNoRoom) {
  Assign(Spec(1));
  Do(PlaceDecodeReplied{{7, 1}, {5}, {absl::ResourceExhaustedError("no room"), {}}});
  EXPECT_EQ(core_.NextDeadline(), 50);
  now_ += 50;
  EXPECT_EQ(Of<CallPlaceDecode>(Do(Tick{})).size(), 1u);
}

TEST_F(PrefillCoreTest, AsksAgainOnTheNextStreamAndGivesUpWithoutOne) {
  Assign(Spec(1));
  Assign(Spec(2));
  Place(2);
  Grant(2, 2, /*lease_us=*/1'000'000);
  const auto disconnected = Do(Disconnected{absl::UnavailableError("broke")});
  EXPECT_TRUE(Of<CallPlaceDecode>(disconnected).empty());
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Spec(3))).empty());
  now_ += 100'000;  // begin_give_up_us
  const auto given_up = Do(Tick{});
  EXPECT_TRUE(Of<CallPlaceDecode>(given_up).empty());
  EXPECT_EQ(core_.Snapshot(now_).failed, 1u);
  const auto registers = Of<CallRegister>(given_up);
  ASSERT_EQ(registers.size(), 1u);
  EXPECT_EQ(registers[0].request.held.size() + registers[0].request.ended.size(), 3u);
  Do(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}});
  EXPECT_EQ(ended_.count({7, 1}) + ended_.count({7, 2}) + ended_.count({7, 3}), 0u)
      << "what the registration told is not told again";
}

TEST_F(PrefillCoreTest, AWelcomeCancelsWhatNobodyKnowsAndBringsTheQuestionsAgain) {
  Assign(Spec(1));
  Assign(Spec(2));
  Do(Disconnected{absl::UnavailableError("broke")});
  now_ = core_.NextDeadline();
  ASSERT_EQ(Of<CallRegister>(Do(Tick{})).size(), 1u);
  const auto effects = Do(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000, {{{7, 2}, {5}}}}});
  ASSERT_EQ(Of<CallPlaceDecode>(effects).size(), 1u);
  EXPECT_EQ(Of<CallPlaceDecode>(effects)[0].request.id, (RequestId{7, 1}));
  EXPECT_EQ(ended_.at({7, 2}).code(), absl::StatusCode::kCancelled);
}

TEST_F(PrefillCoreTest, Invariant2CancelDuringStepAndHandoffWaitsForBoth) {
  Assign(Spec(1));
  Open(1);
  Effects effects = Do(CancelCalled{{{7, 1}, {5}, "test"}});
  EXPECT_EQ(Of<StopHandoff>(effects).size(), 1u);
  EXPECT_EQ(Held(), 2);
  effects = Step();
  EXPECT_EQ(Held(), 2);
  EXPECT_TRUE(Of<RunStep>(effects).empty());  // no further chunk
  EXPECT_TRUE(Of<CallAbort>(effects).empty());
  effects = Do(HandoffStopped{{7, 1}, {5}});
  EXPECT_EQ(Of<CallAbort>(effects).size(), 1u);  // the writer's word
  EXPECT_EQ(Held(), 0);
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kCancelled);
}

TEST_F(PrefillCoreTest, OnlyWhatWasAskedOfTheDecodeSideIsAborted) {
  Assign(Spec(1));
  EXPECT_TRUE(Of<CallAbort>(Do(CancelCalled{{{7, 1}, {5}, "test"}})).empty());
  EXPECT_TRUE(Place(1).empty()) << "it comes late";
  Assign(Spec(2));
  Place(2);  // the Grant is under way: its blocks may be taken
  const auto aborts = Of<CallAbort>(Do(CancelCalled{{{7, 2}, {5}, "test"}}));
  ASSERT_EQ(aborts.size(), 1u);
  EXPECT_EQ(aborts[0].endpoint, "d:1");
  EXPECT_TRUE(Grant(2).empty());
}

TEST_F(PrefillCoreTest, APlaceThatCameWithThePlanIsOpenedWithoutAQuestion) {
  AssignRequest assign{Spec(1), {5}, {1}};
  assign.placed = Placed{{5}, {4}, "d:1"};
  Effects effects = Do(AssignCalled{{++calls_}, assign});
  EXPECT_TRUE(Of<CallPlaceDecode>(effects).empty());
  EXPECT_EQ(Of<CallOpenTransfer>(effects).at(0).endpoint, "d:1");
  EXPECT_EQ(Of<RunStep>(Grant(1)).size(), 1u);
  // One that waits for its turn opens nothing.
  for (uint64_t serial : {2, 3, 4}) {
    AssignRequest next{Spec(serial), {5}, {serial}};
    next.placed = Placed{{5}, {4}, "d:1"};
    effects = Do(AssignCalled{{++calls_}, next});
    EXPECT_EQ(Of<CallOpenTransfer>(effects).size(), serial == 2 ? 1u : 0u);
  }
  EXPECT_EQ(core_.Snapshot(now_).queued, 2);
}

TEST_F(PrefillCoreTest, ADecodeSideThatIsFullIsToldAndAnotherOpened) {
  AssignRequest assign{Spec(1), {5}, {1}};
  assign.placed = Placed{{5}, {4}, "d:1"};
  Do(AssignCalled{{++calls_}, assign});
  const absl::Status full = absl::ResourceExhaustedError("3 blocks wanted, 1 free");
  Effects effects = Do(OpenTransferReplied{{7, 1}, {5}, {full}});
  EXPECT_TRUE(Of<RunStep>(effects).empty());
  EXPECT_TRUE(Of<CallAbort>(effects).empty()) << "it took nothing";
  const PlaceDecodeRequest asked = Of<CallPlaceDecode>(effects).at(0).request;
  EXPECT_EQ(asked.refused_by, InstanceId{4});
  EXPECT_EQ(asked.why, full);
  EXPECT_EQ(Held(), 2) << "it is about to start";
  effects = Do(PlaceDecodeReplied{{7, 1}, {5}, {{}, {{5}, {6}, "d:2"}}});
  EXPECT_EQ(Of<CallOpenTransfer>(effects).at(0).endpoint, "d:2");
  effects = Grant(1);
  EXPECT_EQ(Of<OpenHandoff>(effects).size(), 1u);
  EXPECT_EQ(Of<StartHandoff>(effects).at(0).endpoint, "d:2");
  EXPECT_EQ(Of<RunStep>(effects).size(), 1u);
}

TEST_F(PrefillCoreTest, ADecodeSideThatCannotBeReachedIsReplacedToo) {
  Assign(Spec(1));
  Place(1);
  for (int attempt = 1; attempt < Config().attempts; ++attempt) {
    const auto none = Do(OpenTransferReplied{{7, 1}, {5}, {absl::UnavailableError("lost")}});
    EXPECT_TRUE(Of<CallPlaceDecode>(none).empty());
    now_ += Config().retry_us;
    EXPECT_EQ(Of<CallOpenTransfer>(Do(Tick{})).size(), 1u);
  }
  const auto effects = Do(OpenTransferReplied{{7, 1}, {5}, {absl::UnavailableError("lost")}});
  EXPECT_EQ(Of<CallPlaceDecode>(effects).at(0).request.why, absl::UnavailableError("lost"));
  EXPECT_EQ(ended_.count({7, 1}), 0u);
}

TEST_F(PrefillCoreTest, AnEpochThatNobodyIssuedEndsNothing) {
  Assign(Spec(1));
  Do(CancelCalled{{{7, 1}, {UINT64_MAX}, "forged"}});
  Do(CancelCalled{{{7, 2}, {UINT64_MAX}, "forged"}});
  EXPECT_EQ(core_.Snapshot(now_).blocks.held, 2);
  Assign(Spec(2));
  EXPECT_EQ(core_.Snapshot(now_).blocks.held, 4);
}

TEST_F(PrefillCoreTest, TheLeaseIsRenewedAndWritingStopsWhenItIsNot) {
  Assign(Spec(1));
  Place(1);
  Grant(1);
  now_ = 300;  // a third of the lease
  EXPECT_EQ(Of<CallRenew>(Do(Tick{})).size(), 1u);
  now_ = 350;
  EXPECT_EQ(Of<ExtendHandoff>(Do(RenewReplied{{7, 1}, {5}, {{}, 900}}))[0].post_until_us, 1200);
  now_ = 600;
  EXPECT_EQ(Of<CallRenew>(Do(Tick{})).size(), 1u);
  Do(RenewReplied{{7, 1}, {5}, {absl::UnavailableError("lost"), 0}});
  now_ = 1200;
  EXPECT_EQ(Of<StopHandoff>(Do(Tick{})).size(), 1u);
}

TEST_F(PrefillCoreTest, AGrantIsTriedAgainAndAMismatchIsNot) {
  Assign(Spec(1));
  Place(1);
  Do(OpenTransferReplied{{7, 1}, {5}, {absl::UnavailableError("lost")}});
  now_ = 50;
  EXPECT_EQ(Of<CallOpenTransfer>(Do(Tick{})).size(), 1u);
  Do(OpenTransferReplied{{7, 1}, {5}, {absl::FailedPreconditionError("dtype")}});
  EXPECT_EQ(ended_.at({7, 1}), absl::FailedPreconditionError("dtype"));
}

TEST_F(PrefillCoreTest, AssignIsRefusedHonestly) {
  EXPECT_EQ(StatusOf(Assign(Spec(1, 41))).code(), absl::StatusCode::kInvalidArgument);
  Do(CancelCalled{{{7, 2}, {5}, "overtook its Assign"}});
  EXPECT_EQ(StatusOf(Assign(Spec(2))).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(StatusOf(Assign(Spec(3))).ok());
  EXPECT_TRUE(StatusOf(Assign(Spec(3))).ok());  // said again
  EXPECT_EQ(core_.Snapshot(now_).asking, 1);
}

TEST_F(PrefillCoreTest, ADrainHandsBackWhatHasNotBegunAndLeavesWhenItsKvIsTaken) {
  Assign(Spec(1), 10);
  Place(1);
  Grant(1);
  Assign(Spec(2), 20);
  Assign(Spec(3), 30);  // queued: begin_ahead is 2
  Do(Drain{1'000'000});
  now_ = 100;
  Do(Tick{});
  EXPECT_EQ(ended_.at({7, 3}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(StatusOf(Assign(Spec(4))).code(), absl::StatusCode::kUnavailable);
  Do(CancelCalled{{{7, 2}, {5}, "test"}});
  Step();
  Step();
  Do(HandoffDone{{7, 1}, {5}, {256, 256}});
  EXPECT_TRUE(Of<CallUnregister>(Do(Tick{})).empty());
  now_ = 200;
  EXPECT_EQ(Of<CallUnregister>(Do(CommitReplied{{7, 1}, {5}, {}})).size(), 1u);
  EXPECT_EQ(Of<Drained>(Do(UnregisterReplied{})).size(), 1u);
}

TEST_F(PrefillCoreTest, AnOrderedDrainHandsBackAndStaysUntilItIsUndone) {
  Assign(Spec(1), 10);
  Place(1);
  Grant(1);
  Assign(Spec(2), 20);
  Assign(Spec(3), 30);  // queued: begin_ahead is 2
  now_ = 10;
  Order(true);
  now_ = 100;
  Do(Tick{});
  EXPECT_EQ(ended_.at({7, 3}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ended_.count({7, 1}), 0u) << "what has begun goes on";
  EXPECT_EQ(StatusOf(Assign(Spec(4))).code(), absl::StatusCode::kUnavailable);
  Do(CancelCalled{{{7, 1}, {5}, "test"}});
  Do(CancelCalled{{{7, 2}, {5}, "test"}});
  now_ = 200;
  EXPECT_TRUE(Of<CallUnregister>(Do(Tick{})).empty()) << "it stays";
  EXPECT_TRUE(core_.Snapshot(now_).draining);
  Order(false);
  EXPECT_FALSE(core_.Snapshot(now_).draining);
  EXPECT_TRUE(StatusOf(Assign(Spec(5))).ok());
}

TEST_F(PrefillCoreTest, AnOrderToTheInstanceItselfIsAsTheOrchestrators) {
  Do(OrderDrain{true});
  EXPECT_EQ(StatusOf(Assign(Spec(6))).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(core_.Snapshot(now_).draining);
  now_ = 300'000;
  Do(Tick{});
  EXPECT_TRUE(core_.Snapshot(now_).drained) << "it is empty, and the orchestrator has heard so";
  Do(OrderDrain{false});
  EXPECT_FALSE(core_.Snapshot(now_).drained);
  EXPECT_TRUE(StatusOf(Assign(Spec(7))).ok());
}

TEST_F(PrefillCoreTest, ScoringAloneCommitsWithoutAToken) {
  Assign(Spec(1, 4, 0));
  const Effects effects = Open(1, 1);
  EXPECT_FALSE(Of<RunStep>(effects)[0].sequences[0].sample);
  Step();
  EXPECT_FALSE(Of<CallCommit>(Do(HandoffDone{{7, 1}, {5}, {128, 128}}))[0].request.has_token);
}

TEST_F(PrefillCoreTest, ASequenceThatFailsEndsItsOwnRequest) {
  uint64_t serial = 0;
  for (const absl::Status& failure :
       {absl::InvalidArgumentError("no token left"), absl::InternalError("NaN")}) {
    const uint64_t bad = ++serial, good = ++serial;
    Assign(Spec(bad, 6));
    Open(bad);
    Assign(Spec(good, 2));
    Open(good, 1);
    ASSERT_EQ(Of<RunStep>(Step())[0].sequences.size(), 2u);  // the end of one, the other whole
    Do(StepDone{++step_, {}, {{.status = failure}, {.token = 41, .payload = "p"}}});
    EXPECT_EQ(ended_.count({7, good}), 0u);
    EXPECT_TRUE(core_.Snapshot(now_).engine.ok());
    EXPECT_EQ(Held(), 3);
    Do(HandoffStopped{{7, bad}, {5}});
    Do(HandoffDone{{7, good}, {5}, {128, 128}});
    Do(CommitReplied{{7, good}, {5}, {}});
    EXPECT_EQ(ended_.at({7, bad}), failure);
    EXPECT_TRUE(ended_.at({7, good}).ok()) << ended_.at({7, good});
    EXPECT_EQ(Held(), 0);
  }
}

TEST_F(PrefillCoreTest, ThreeStepsOfNothingButNanAreAFailedEngine) {
  for (uint64_t serial = 1; serial <= 3; ++serial) {
    EXPECT_TRUE(core_.Snapshot(now_).engine.ok());
    Assign(Spec(serial, 2));
    Open(serial, 1);
    Do(StepDone{++step_, {}, {{.status = absl::InternalError("NaN")}}});
    Do(HandoffStopped{{7, serial}, {5}});
    EXPECT_TRUE(absl::IsInternal(ended_.at({7, serial})));
  }
  EXPECT_FALSE(core_.Snapshot(now_).engine.ok());
}

TEST_F(PrefillCoreTest, AFailedEngineEndsEverythingAndLeaves) {
  Assign(Spec(1));
  Assign(Spec(2));
  Open(1);
  EXPECT_EQ(Of<EngineFailed>(Do(StepDone{1, absl::InternalError("device"), {}}))[0].status,
            absl::InternalError("device"));
  const Effects effects = Do(HandoffStopped{{7, 1}, {5}});
  const absl::Status end = absl::UnavailableError("the engine failed: device");
  EXPECT_EQ(ended_.at({7, 1}), end);
  EXPECT_EQ(ended_.at({7, 2}), end);
  EXPECT_EQ(failed_under_, std::set<RequestId>({{7, 1}})) << "the other was not in the step";
  EXPECT_EQ(Of<CallUnregister>(effects).size(), 1u);
  EXPECT_EQ(Held(), 0);
  EXPECT_EQ(core_.Snapshot(now_).engine, absl::InternalError("device"));
  EXPECT_EQ(StatusOf(Assign(Spec(3))).code(), absl::StatusCode::kUnavailable);
}

TEST_F(PrefillCoreTest, AStepThatDoesNotEndFailsTheEngine) {
  Assign(Spec(1));
  Open(1, 2, 10 * kStepTimeoutUs);
  now_ = kStepTimeoutUs - 1;
  EXPECT_TRUE(Of<EngineFailed>(Do(Tick{})).empty());
  EXPECT_EQ(core_.NextDeadline(), kStepTimeoutUs);
  now_ = kStepTimeoutUs;
  EXPECT_EQ(Of<EngineFailed>(Do(Tick{}))[0].status.code(), absl::StatusCode::kDeadlineExceeded);
  const Effects effects = Do(HandoffStopped{{7, 1}, {5}});
  EXPECT_EQ(failed_under_, std::set<RequestId>({{7, 1}}));
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Of<CallUnregister>(effects).size(), 1u) << "it does not wait for the step";
  EXPECT_TRUE(Do(StepDone{1, {}, {{40, "p", ""}}}).empty()) << "too late";
}

TEST_F(PrefillCoreTest, AFailedEngineWaitsForItsHandoffsOnlyAWhile) {
  Assign(Spec(1));
  Open(1);  // the handoff runs, and is never heard of again
  Do(StepDone{1, absl::InternalError("device"), {}});
  now_ = kLastWordsUs - 1;
  EXPECT_TRUE(Of<CallUnregister>(Do(Tick{})).empty());
  EXPECT_LE(core_.NextDeadline(), kLastWordsUs);
  now_ = kLastWordsUs;
  EXPECT_EQ(Of<CallUnregister>(Do(Tick{})).size(), 1u);
}

TEST_F(PrefillCoreTest, WhatIsComputedIsHandedOverAlthoughTheEngineFailed) {
  Assign(Spec(1, 4));
  Open(1, 1, 1'000'000);
  Assign(Spec(2));
  Open(2);
  Step();  // the first is computed, the second runs
  EXPECT_EQ(Of<EngineFailed>(Do(StepDone{++step_, absl::InternalError("device"), {}})).size(), 1u);
  EXPECT_EQ(ended_.count({7, 1}), 0u);
  Do(HandoffStopped{{7, 2}, {5}});
  EXPECT_FALSE(ended_.at({7, 2}).ok());
  EXPECT_EQ(Of<CallCommit>(Do(HandoffDone{{7, 1}, {5}, {128, 128}})).size(), 1u);
  const Effects effects = Do(CommitReplied{{7, 1}, {5}, {}});
  EXPECT_TRUE(ended_.at({7, 1}).ok());
  EXPECT_EQ(Of<CallUnregister>(effects).size(), 1u);
}

TEST(PrefillCoreProbes, AProbeDelaysABatchByThatOneStep) {
  PrefillConfig config = Config();
  config.engine.probe_interval_us = 1000;
  config.engine.probe_block = {10};
  PrefillCore core(config);
  const std::vector<RunStep> probe = Of<RunStep>(core.Handle(Tick{}, 1));
  ASSERT_EQ(probe.size(), 1u);
  EXPECT_TRUE(probe[0].probe);
  core.Handle(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}}, 2);
  core.Handle(AssignCalled{{1}, {Spec(1), {5}, {1}}}, 3);
  core.Handle(PlaceDecodeReplied{{7, 1}, {5}, {{}, {{5}, {4}, "d:1"}}}, 4);
  const OpenTransferReplied granted{{7, 1}, {5}, {{}, {{8}, {9}}, {}, "memory", 900}};
  EXPECT_TRUE(Of<RunStep>(core.Handle(granted, 4)).empty()) << "the probe is in flight";
  const auto effects = core.Handle(StepDone{probe[0].step, {}, {{}}}, 5);
  ASSERT_EQ(Of<RunStep>(effects).size(), 1u);
  EXPECT_FALSE(Of<RunStep>(effects)[0].probe);
  EXPECT_TRUE(core.CheckInvariants().ok());
  EXPECT_EQ(core.Snapshot(5).steps, 1u);
  EXPECT_EQ(core.Snapshot(5).prompt_tokens, 0u);
}

TEST(PrefillCoreProbes, AfterNothingButNanTheNextStepIsAProbe) {
  PrefillConfig config = Config();
  config.engine.probe_interval_us = kSecondUs;
  config.engine.probe_block = {10};
  PrefillCore core(config);
  uint64_t step = Of<RunStep>(core.Handle(Tick{}, 1)).at(0).step;
  core.Handle(StepDone{step, {}, {{.token = 1, .payload = "p"}}}, 2);
  core.Handle(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}}, 2);
  const auto run = [&core](uint64_t serial) {
    core.Handle(AssignCalled{{serial}, {Spec(serial, 2), {5}, {serial}}}, 3);
    core.Handle(PlaceDecodeReplied{{7, serial}, {5}, {{}, {{5}, {4}, "d:1"}}}, 3);
    return core.Handle(OpenTransferReplied{{7, serial}, {5}, {{}, {{8}}, {}, "memory", 900}}, 3);
  };
  for (uint64_t serial = 1; serial <= NanSteps::kLimit; ++serial) {
    const auto steps = Of<RunStep>(run(serial));
    ASSERT_EQ(steps.size(), 1u);
    ASSERT_FALSE(steps[0].probe);
    step = steps[0].step;
    if (serial == NanSteps::kLimit) break;
    core.Handle(StepDone{step, {}, {{.status = absl::InternalError("NaN")}}}, 4);
  }
  run(9);  // waits for the step in flight, and then for the probe
  auto effects = core.Handle(StepDone{step, {}, {{.status = absl::InternalError("NaN")}}}, 4);
  ASSERT_EQ(Of<RunStep>(effects).size(), 1u);
  EXPECT_TRUE(Of<RunStep>(effects)[0].probe);
  step = Of<RunStep>(effects)[0].step;
  effects = core.Handle(StepDone{step, {}, {{.token = 1, .payload = "p"}}}, 5);
  ASSERT_EQ(Of<RunStep>(effects).size(), 1u) << "the engine is well";
  EXPECT_EQ(Of<RunStep>(effects)[0].sequences[0].id.serial, 9u);
}

}  // namespace
}  // namespace skein::scheduler
