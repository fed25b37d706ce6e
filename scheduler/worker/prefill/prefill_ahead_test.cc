// A PrefillCore that computes prompts before the decode side has granted blocks for them.
#include <gtest/gtest.h>

#include "scheduler/worker/testing/prefill_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::PrefillCoreTest;
using testing::PrefillTestConfig;
using testing::Spec;

const absl::Status kFull = absl::ResourceExhaustedError("3 blocks wanted, 1 free");

// A prompt of 6 tokens takes two steps here.
class PrefillAheadTest : public PrefillCoreTest {
 protected:
  // With a decode instance named by its plan.
  Effects AssignPlaced(uint64_t serial, uint64_t sequence = 0, int64_t tokens = 6) {
    AssignRequest assign{Spec(serial, tokens), {5}, {sequence == 0 ? serial : sequence}};
    assign.placed = Placed{{5}, {4}, "d:1"};
    return Do(AssignCalled{{++calls_}, assign});
  }
  Effects Refuse(uint64_t serial) { return Do(OpenTransferReplied{{7, serial}, {5}, {kFull}}); }
  // The serials of the step's sequences, in order.
  static std::vector<uint64_t> Ran(const Effects& effects) {
    std::vector<uint64_t> serials;
    for (const RunStep& step : Of<RunStep>(effects)) {
      for (const StepSequence& sequence : step.sequences) serials.push_back(sequence.id.serial);
    }
    return serials;
  }
  // What reports said last of each request: whether it has opened its transfer, and how many chunks
  // are computed.
  void Note(const Effects& effects) {
    for (const CallReport& report : Of<CallReport>(effects)) {
      for (const HeldRequest& held : report.request.held) {
        opened_[held.id.serial] = held.opened;
        chunks_done_[held.id.serial] = held.chunks_done;
      }
    }
  }
  std::string_view StateOf(uint64_t serial) { return core_.StateOf({7, serial}); }

  std::map<uint64_t, bool> opened_;
  std::map<uint64_t, uint32_t> chunks_done_;
};

using Serials = std::vector<uint64_t>;

TEST_F(PrefillAheadTest, TheFirstStepStartsWithTheCallThatOpensTheTransfer) {
  const Effects effects = AssignPlaced(1);
  EXPECT_EQ(Of<CallOpenTransfer>(effects).size(), 1u);
  EXPECT_EQ(Of<OpenHandoff>(effects).size(), 1u);
  EXPECT_EQ(Ran(effects), Serials{1});
  EXPECT_EQ(StateOf(1), "computing-ahead");
  EXPECT_EQ(core_.Snapshot(now_).computing, 1);
  EXPECT_EQ(core_.Snapshot(now_).load.running_requests, 1);
  EXPECT_EQ(core_.Snapshot(now_).load.queued_tokens, 6);
  const Effects granted = Grant(1);
  EXPECT_EQ(Of<StartHandoff>(granted).size(), 1u);
  EXPECT_TRUE(Of<OpenHandoff>(granted).empty());
  EXPECT_EQ(StateOf(1), "computing");
}

TEST_F(PrefillAheadTest, AResultThatComesBeforeTheGrantIsCommittedAfterIt) {
  AssignPlaced(1);
  Note(Step());
  now_ = 10;
  Effects effects = Step(41);
  Note(effects);
  EXPECT_TRUE(Of<CallCommit>(effects).empty());
  EXPECT_EQ(StateOf(1), "computed");
  EXPECT_EQ(core_.Snapshot(now_).asking, 1);
  EXPECT_EQ(Held(), 2);
  EXPECT_FALSE(opened_[1]);
  now_ = 30;
  effects = Grant(1);
  Note(effects);
  EXPECT_EQ(Of<StartHandoff>(effects).size(), 1u);
  EXPECT_TRUE(Of<CallCommit>(effects).empty()) << "its KV is on its way";
  EXPECT_EQ(StateOf(1), "committing");
  now_ = 35;
  const CommitRequest commit =
      Of<CallCommit>(Do(HandoffDone{{7, 1}, {5}, {256, 256}})).at(0).request;
  EXPECT_EQ(commit.token, 41);
  EXPECT_EQ(commit.times, (PrefillTimes{0, 10, 25}));
  Note(Do(CommitReplied{{7, 1}, {5}, {}}));
  EXPECT_TRUE(ended_.at({7, 1}).ok());
  EXPECT_EQ(Held(), 0);
}

TEST_F(PrefillAheadTest, ItIsToldAsOpenedExactlyWhenBlocksWereGranted) {
  Note(AssignPlaced(1));
  Note(Assign(Spec(2)));
  Note(Do(CancelCalled{{{7, 2}, {5}, "test"}}));  // a report is due
  EXPECT_FALSE(opened_[1]) << "it only computes";
  Note(Grant(1, 2, /*lease_us=*/1'000'000));
  Note(Assign(Spec(3)));
  Note(Do(CancelCalled{{{7, 3}, {5}, "test"}}));
  EXPECT_TRUE(opened_[1]);
}

// So the orchestrator knows that no step has it while it waits for decode room.
TEST_F(PrefillAheadTest, ItTellsAtOnceThatItIsComputed) {
  Note(Assign(Spec(1)));
  Note(Step());
  EXPECT_EQ(chunks_done_[1], 0u);
  Note(Step());
  EXPECT_EQ(chunks_done_[1], 1u);
  EXPECT_FALSE(opened_[1]);
  Do(Disconnected{absl::UnavailableError("broke")});
  now_ = core_.NextDeadline();
  const auto registers = Of<CallRegister>(Do(Tick{}));
  ASSERT_EQ(registers.size(), 1u);
  ASSERT_EQ(registers[0].request.held.size(), 1u);
  EXPECT_EQ(registers[0].request.held[0].chunks_done, 1u) << "the next orchestrator hears it, too";
}

TEST_F(PrefillAheadTest, ARefusalDoesNotStopItsComputation) {
  AssignPlaced(1);
  Effects effects = Refuse(1);
  EXPECT_EQ(Of<CallPlaceDecode>(effects).at(0).request.refused_by, InstanceId{4});
  effects = Step();
  ASSERT_EQ(Ran(effects), Serials{1});
  EXPECT_EQ(Of<RunStep>(effects)[0].sequences[0].position, 4) << "where it was";
  Step(42);
  effects = Do(PlaceDecodeReplied{{7, 1}, {5}, {{}, {{5}, {6}, "d:2"}}});
  EXPECT_EQ(Of<CallOpenTransfer>(effects).at(0).endpoint, "d:2");
  EXPECT_TRUE(Of<OpenHandoff>(effects).empty()) << "the sender knows which layers are written";
  Refuse(1);  // now that it is computed
  EXPECT_EQ(StateOf(1), "computed");
  Place(1);
  EXPECT_EQ(Of<StartHandoff>(Grant(1)).at(0).remote_blocks.size(), 2u);
  const auto commits = Of<CallCommit>(Do(HandoffDone{{7, 1}, {5}, {256, 256}}));
  ASSERT_EQ(commits.size(), 1u);
  EXPECT_EQ(commits[0].request.token, 42);
}

TEST_F(PrefillAheadTest, PromptsWithAPlaceGoBeforeThoseWithoutOne) {
  Assign(Spec(1, 8), 10);
  EXPECT_EQ(Ran(AssignPlaced(2, 20, 6)), Serials{}) << "the other's step is in flight";
  EXPECT_EQ(Ran(Step()), Serials{2}) << "four tokens, a whole step";
  EXPECT_EQ(Ran(Step()), (Serials{2, 1})) << "what is left of the step";
  Place(1);
  Refuse(2);  // it is in its last step
  EXPECT_EQ(Ran(Step(40, 2)), Serials{1});
}

TEST_F(PrefillAheadTest, ARefusedPromptFallsBehind) {
  AssignPlaced(1, 10, 8);
  AssignPlaced(2, 20, 8);
  Refuse(1);
  EXPECT_EQ(Ran(Step()), Serials{2});
  Place(1);
  EXPECT_EQ(Ran(Step()), Serials{1}) << "in the order of the plans again";
}

TEST_F(PrefillAheadTest, WhatIsComputedStaysInFrontUntilBlocksAreGranted) {
  Assign(Spec(1, 4));
  Assign(Spec(2, 4));
  EXPECT_EQ(Ran(Step()), Serials{2});
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Spec(3, 4))).empty()) << "open_ahead is 2";
  EXPECT_EQ(Ran(Step()), Serials{}) << "both are computed, and have no room";
  EXPECT_EQ(core_.Snapshot(now_).asking, 2);
  EXPECT_EQ(core_.Snapshot(now_).queued, 1);
  const Effects effects = Open(1, 1);
  EXPECT_EQ(Ran(effects), Serials{3});
  EXPECT_EQ(Of<CallPlaceDecode>(effects).size(), 1u);
}

TEST_F(PrefillAheadTest, ACancelWaitsForItsStepAndAbortsOnlyWhatWasOpened) {
  Assign(Spec(1));
  EXPECT_TRUE(Of<CallAbort>(Do(CancelCalled{{{7, 1}, {5}, "test"}})).empty());
  EXPECT_EQ(Held(), 2);
  EXPECT_TRUE(Place(1).empty());
  EXPECT_TRUE(Of<CallAbort>(Step()).empty()) << "the decode side never heard of it";
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kCancelled);
  AssignPlaced(2);
  Do(CancelCalled{{{7, 2}, {5}, "test"}});
  EXPECT_TRUE(Of<StartHandoff>(Grant(2)).empty());
  EXPECT_EQ(Of<CallAbort>(Step()).size(), 1u) << "the decode side may have granted blocks";
  EXPECT_EQ(Held(), 0);
}

TEST_F(PrefillAheadTest, ADeadlineEndsWhatIsComputedWithoutAGrant) {
  auto spec = std::make_shared<RequestSpec>(*Spec(1, 4));
  spec->deadline_us = 500;
  Assign(spec);
  Step();
  EXPECT_EQ(StateOf(1), "computed");
  now_ = 500;
  Do(Tick{});
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Held(), 0);
}

TEST_F(PrefillAheadTest, WithoutAnOrchestratorItIsGivenUpAfterItsStep) {
  Assign(Spec(1));
  Do(Disconnected{absl::UnavailableError("broke")});
  now_ += PrefillTestConfig().place_decode_give_up_us;
  Do(Tick{});
  EXPECT_EQ(StateOf(1), "ending");
  Do(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}});
  Step();
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(PrefillAheadTest, ADrainLetsItGoOn) {
  Assign(Spec(1));
  Do(Drain{1'000'000});
  EXPECT_EQ(Ran(Step()), Serials{1});
  Step();
  Open(1);
  Do(HandoffDone{{7, 1}, {5}, {256, 256}});
  EXPECT_EQ(Of<CallUnregister>(Do(CommitReplied{{7, 1}, {5}, {}})).size(), 1u);
}

TEST_F(PrefillAheadTest, AnEngineThatFailsBeforeTheGrantIsEvidence) {
  Assign(Spec(1));
  const Effects effects = Do(StepDone{++step_, absl::InternalError("device"), {}});
  EXPECT_EQ(Of<EngineFailed>(effects).size(), 1u);
  EXPECT_EQ(failed_under_, std::set<RequestId>({{7, 1}}));
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Held(), 0);
}

TEST_F(PrefillAheadTest, AnEngineThatHangsUnderAnOpeningOneAbortsIt) {
  AssignPlaced(1);
  now_ = testing::kStepTimeoutUs;
  const Effects effects = Do(Tick{});
  EXPECT_EQ(Of<CallAbort>(effects).size(), 1u);
  EXPECT_EQ(failed_under_, std::set<RequestId>({{7, 1}}));
}

TEST_F(PrefillAheadTest, WhatIsComputedMayFindAPlaceAfterTheEngineFailed) {
  Assign(Spec(1, 4));
  Assign(Spec(2));
  Step();
  EXPECT_EQ(StateOf(1), "computed");
  Do(StepDone{++step_, absl::InternalError("device"), {}});
  EXPECT_EQ(ended_.count({7, 1}), 0u);
  EXPECT_EQ(ended_.count({7, 2}), 1u);
  Open(1, 1);
  Do(HandoffDone{{7, 1}, {5}, {128, 128}});
  Do(CommitReplied{{7, 1}, {5}, {}});
  EXPECT_TRUE(ended_.at({7, 1}).ok());
}

TEST_F(PrefillAheadTest, ASequenceThatFailsBeforeItsGrantEndsAlone) {
  Assign(Spec(1, 2));
  Assign(Spec(2, 2));
  Do(StepDone{++step_, {}, {{.status = absl::InternalError("NaN")}}});
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(StateOf(2), "computing-ahead");
}

}  // namespace
}  // namespace skein::scheduler
