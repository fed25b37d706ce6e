#include "scheduler/worker/prefill/prefill_core.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/prefill_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::PrefillCoreTest;
using testing::PrefillTestConfig;
using testing::Spec;

TEST_F(PrefillCoreTest, APromptIsComputedHandedOverAndCommitted) {
  Effects effects = Assign(Spec(1));
  EXPECT_TRUE(StatusOf(effects).ok());
  EXPECT_EQ(Of<CallPlaceDecode>(effects).size(), 1u);
  EXPECT_EQ(Held(), 2);
  EXPECT_EQ(Of<OpenHandoff>(effects)[0].blocks.size(), 2u);
  EXPECT_EQ(Of<RunStep>(effects)[0].sequences[0].count, 4);
  effects = Place(1);
  EXPECT_EQ(Of<CallOpenTransfer>(effects)[0].endpoint, "d:1");
  now_ = 100;
  effects = Grant(1);
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

// Queue: until its first step; handoff: what of it, and of the wait for its grant, the steps did
// not hide.
TEST_F(PrefillCoreTest, ACommitTellsHowLongThePromptTook) {
  Assign(Spec(2, 3));
  Open(2, 1);
  Assign(Spec(1));
  now_ = 30;
  Step();  // its first step starts
  Open(1);
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

TEST(PrefillReportTest, ItsRegistrationSaysHowItCutsChunksAndHowManyRequestsItHolds) {
  PrefillCore core(PrefillTestConfig());
  const auto effects = core.Handle(Tick{}, 0);
  EXPECT_EQ(Of<CallRegister>(effects)[0].request.identity.max_batch_tokens,
            PrefillTestConfig().batch.max_batch_tokens);
  EXPECT_EQ(Of<CallRegister>(effects)[0].request.identity.max_requests,
            PrefillTestConfig().max_requests);
}

TEST(PrefillReportTest, ReportsAreSpacedByWhatTheLastOneNamed) {
  PrefillConfig config = PrefillTestConfig();
  config.membership.report_spacing_us = 100;
  config.membership.report_spacing_per_request_us = 50;
  PrefillCore core(config);
  core.Handle(Tick{}, 0);
  core.Handle(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}}, 0);
  core.Handle(AssignCalled{{1}, {Spec(1), {5}, {1}}}, 0);
  core.Handle(AssignCalled{{2}, {Spec(2), {5}, {2}}}, 0);
  core.Handle(AssignCalled{{3}, {Spec(3), {5}, {3}}}, 0);
  core.Handle(CancelCalled{{{7, 2}, {5}, "test"}}, 0);
  const auto reports = Of<CallReport>(core.Handle(Tick{}, 100));
  ASSERT_EQ(reports.size(), 1u);
  EXPECT_EQ(reports[0].request.held.size(), 2u);
  EXPECT_EQ(reports[0].request.ended.size(), 1u);
  core.Handle(ReportReplied{1, {}}, 100);
  core.Handle(CancelCalled{{{7, 3}, {5}, "test"}}, 100);
  EXPECT_EQ(core.NextDeadline(), 100 + 100 + 3 * 50);
  const auto next = Of<CallReport>(core.Handle(Tick{}, 350));
  ASSERT_EQ(next.size(), 1u);
  EXPECT_TRUE(next[0].request.held.empty()) << "the first one only computes";
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

TEST_F(PrefillCoreTest, AssignIsRefusedHonestly) {
  EXPECT_EQ(StatusOf(Assign(Spec(1, 41))).code(), absl::StatusCode::kInvalidArgument);
  Do(CancelCalled{{{7, 2}, {5}, "overtook its Assign"}});
  EXPECT_EQ(StatusOf(Assign(Spec(2))).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(StatusOf(Assign(Spec(3))).ok());
  EXPECT_TRUE(StatusOf(Assign(Spec(3))).ok());  // duplicate
  EXPECT_EQ(core_.Snapshot(now_).computing, 1);
}

TEST_F(PrefillCoreTest, ADrainHandsBackWhatHasNotBegunAndLeavesWhenItsKvIsTaken) {
  Assign(Spec(1), 10);
  Place(1);
  Grant(1);
  Assign(Spec(2), 20);
  Assign(Spec(3), 30);  // queued: open_ahead is 2
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
  Assign(Spec(3), 30);  // queued: open_ahead is 2
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
  EXPECT_FALSE(Of<RunStep>(Assign(Spec(1, 4, 0)))[0].sequences[0].sample);
  Open(1, 1);
  Step();
  EXPECT_FALSE(Of<CallCommit>(Do(HandoffDone{{7, 1}, {5}, {128, 128}}))[0].request.has_token);
}

TEST_F(PrefillCoreTest, TheEngineForgetsASequenceWhenItIsInNoFurtherStep) {
  Assign(Spec(1));
  Assign(Spec(2));
  EXPECT_TRUE(Of<ReleaseSequence>(Do(CancelCalled{{{7, 2}, {5}, "test"}})).empty())
      << "it was in no step";
  Open(1);
  EXPECT_TRUE(Of<ReleaseSequence>(Do(CancelCalled{{{7, 1}, {5}, "test"}})).empty());
  Do(HandoffStopped{{7, 1}, {5}});
  const auto released = Of<ReleaseSequence>(Step());
  ASSERT_EQ(released.size(), 1u) << "its step has ended";
  EXPECT_EQ(released[0].id, (RequestId{7, 1}));
  EXPECT_EQ(released[0].epoch, Epoch{5});
}

}  // namespace
}  // namespace skein::scheduler
