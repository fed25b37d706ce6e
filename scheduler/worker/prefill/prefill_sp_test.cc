// SP plans, as one of their members sees them.
#include <gtest/gtest.h>

#include "scheduler/worker/prefill/prefill_core.h"
#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::Spec;

constexpr TimeUs kLeaseUs = 900'000'000;
constexpr uint64_t kSelf = 3;  // among instances 1 … 4; instance i has incarnation i + 6

struct Chunk {
  int64_t tokens = 0;
  std::vector<uint64_t> instances;
};

class PrefillSpTest : public ::testing::Test {
 protected:
  using Effects = std::vector<PrefillEffect>;

  PrefillSpTest() {
    Do(Tick{});
    Do(RegisterReplied{{absl::OkStatus(), {kSelf}, 1'000'000'000}});
  }
  static PrefillConfig Config() {
    PrefillConfig config;
    config.membership.identity = testing::Identity(Role::kPrefill, 10);
    config.membership.report_spacing_us = 0;
    config.membership.report_spacing_per_request_us = 0;
    config.batch = {.max_batch_tokens = 8};
    config.open_ahead = 2;
    config.ring_step.max_us = 700;
    config.join_wait_us = 1000;
    return config;
  }
  Effects Do(const PrefillEvent& event) {
    Effects effects = core_.Handle(event, now_);
    EXPECT_TRUE(core_.CheckInvariants().ok()) << core_.CheckInvariants();
    for (const CallReport& report : Of<CallReport>(effects)) {
      for (const EndedRequest& ended : report.request.ended) {
        ended_[ended.id] = ended.status;
        if (ended.ring_broken) rings_broken_.insert(ended.id);
      }
      held_ = report.request.held;
      for (const PrefillEffect& more : Do(ReportReplied{report.request.serial, {}})) {
        effects.push_back(more);
      }
    }
    return effects;
  }
  // The chunks of a plan from `from` on are new.
  static AssignRequest Plan(SpecPtr spec, const std::vector<Chunk>& chunks, uint64_t sequence,
                            uint32_t from = 0, uint64_t epoch = 5) {
    AssignRequest assign{.spec = std::move(spec), .epoch = {epoch}, .sequence = {sequence}};
    std::map<uint64_t, uint32_t> index;
    for (const Chunk& chunk : chunks) {
      PlanChunk out{.tokens = chunk.tokens};
      for (uint64_t instance : chunk.instances) {
        const auto [it, added] = index.emplace(instance, assign.members.size());
        if (added) {
          assign.members.push_back(
              {{instance}, {instance + 6}, "w", "c" + ToString({0, instance})});
        }
        out.members.push_back(it->second);
      }
      assign.chunks.push_back(out);
    }
    assign.from_chunk = from;
    return assign;
  }
  Effects Assign(AssignRequest assign) { return Do(AssignCalled{{++calls_}, std::move(assign)}); }
  static absl::Status StatusOf(const Effects& assign) {
    return Of<AnswerAssign>(assign)[0].reply.status;
  }
  Effects Start(uint64_t serial, uint64_t epoch = 5) {
    return Do(StartCalled{{{7, serial}, {epoch}, {{epoch}, {4}, "d:1"}}});
  }
  Effects Grant(uint64_t serial, size_t blocks) {
    return Do(OpenTransferReplied{
        {7, serial}, {5}, {{}, std::vector<BlockId>(blocks), {}, "memory", kLeaseUs}});
  }
  // The question of a plan's lead is answered, and the transfer opened; `blocks` of the prompt.
  Effects Placed(uint64_t serial, size_t blocks) {
    Effects effects = Do(PlaceDecodeReplied{{7, serial}, {5}, {{}, {{5}, {4}, "d:1"}}});
    for (PrefillEffect& effect : Grant(serial, blocks)) effects.push_back(effect);
    return effects;
  }
  // The orchestrator has no decode room for it.
  Effects NoRoom(uint64_t serial) {
    return Do(PlaceDecodeReplied{{7, serial}, {5}, {absl::ResourceExhaustedError("no room"), {}}});
  }
  // With an orchestrator that does not know this process: the one before is gone.
  Effects RegisterAnew() {
    now_ = 400'000'000;
    for (const CallReport& report : Of<CallReport>(core_.Handle(Tick{}, now_))) {
      const auto effects = Do(ReportReplied{report.request.serial, {absl::NotFoundError("who?")}});
      EXPECT_EQ(Of<CloseStream>(effects).size(), 1u);
    }
    now_ = core_.NextDeadline();
    EXPECT_EQ(Of<CallRegister>(Do(Tick{})).size(), 1u);
    return Do(RegisterReplied{{absl::OkStatus(), {77}, 1'000'000'000}});
  }
  Effects Step(int32_t token = 40) { return Do(StepDone{++step_, {}, {{token, "p", ""}}}); }
  Effects StepFails(absl::Status status) { return Do(StepDone{++step_, std::move(status), {}}); }
  int64_t Held() { return core_.Snapshot(now_).blocks.held; }

  TimeUs now_ = 0;
  uint64_t calls_ = 0;
  uint64_t step_ = 0;
  std::map<RequestId, absl::Status> ended_;
  std::set<RequestId> rings_broken_;
  std::vector<HeldRequest> held_;
  PrefillCore core_{Config()};
};

TEST_F(PrefillSpTest, APieceThatFailsEndsItsOwnPlan) {
  uint64_t serial = 0;
  for (const absl::Status& failure :
       {absl::InvalidArgumentError("no token left"), absl::InternalError("NaN")}) {
    ++serial;
    Assign(Plan(Spec(serial, 16), {{16, {3, 1}}}, 10 * serial));
    Placed(serial, 4);
    Effects ended = Do(StepDone{++step_, {}, {{.status = failure}}});
    for (PrefillEffect& effect : Do(HandoffStopped{{7, serial}, {5}})) ended.push_back(effect);
    EXPECT_EQ(ended_.at({7, serial}), failure);
    EXPECT_TRUE(Of<BreakGroup>(ended).empty()) << "the other may be at the end of the same step";
    EXPECT_EQ(Held(), 0);
    EXPECT_TRUE(core_.Snapshot(now_).engine.ok());
  }
  EXPECT_TRUE(rings_broken_.empty()) << "that was nothing between the two";
}

TEST_F(PrefillSpTest, AStepWithAnInstanceOutOfReachIsToldAsABrokenRing) {
  uint64_t serial = 0;
  for (const absl::Status& failure :
       {absl::UnavailableError("the peer does not answer"), absl::DeadlineExceededError("late")}) {
    ++serial;
    Assign(Plan(Spec(serial, 16), {{16, {3, 1}}}, 10 * serial));
    Placed(serial, 4);
    Do(StepDone{++step_, {}, {{.status = failure}}});
    Do(HandoffStopped{{7, serial}, {5}});
    EXPECT_TRUE(rings_broken_.contains({7, serial}));
  }
}

TEST_F(PrefillSpTest, TheLeadComputesItsShareAndCommitsIt) {
  // Blocks 0 … 5: chunk 0 here alone, chunk 1 with instance 1. One of two history blocks moves.
  Effects effects = Assign(Plan(Spec(1, 22), {{8, {3}}, {14, {3, 1}}}, 10));
  EXPECT_TRUE(StatusOf(effects).ok());
  ASSERT_EQ(Of<CallPlaceDecode>(effects).size(), 1u);
  EXPECT_EQ(Held(), 4);  // two and two of four
  effects = Placed(1, 6);
  EXPECT_EQ(Of<CallOpenTransfer>(effects)[0].request.prefill, InstanceId{kSelf});
  const OpenHandoff open = Of<OpenHandoff>(effects)[0];
  ASSERT_EQ(open.blocks.size(), 4u);
  EXPECT_EQ(open.blocks[2].global, 2);
  EXPECT_EQ(open.blocks[3].global, 5);
  EXPECT_FALSE(open.more);
  StepSequence piece = Of<RunStep>(effects)[0].sequences[0];
  EXPECT_EQ(piece.count, 8);
  EXPECT_FALSE(piece.sample);
  EXPECT_EQ(piece.ring->comm_addresses.size(), 1u);
  const GroupId first_group = piece.ring->group;

  now_ = 50;
  effects = Step();
  EXPECT_EQ(held_[0].chunks_done, 1u);
  piece = Of<RunStep>(effects)[0].sequences[0];
  EXPECT_EQ(piece.ring->piece.spans[0], (std::vector<TokenSpan>{{8, 4}, {20, 2}}));
  EXPECT_EQ(piece.count, 6);
  EXPECT_TRUE(piece.sample);
  EXPECT_EQ(*piece.blocks, (std::vector<BlockId>{open.blocks[2].local, open.blocks[3].local}));
  EXPECT_EQ(piece.ring->history, (std::vector<BlockId>{open.blocks[0].local}));
  EXPECT_EQ(piece.ring->send[1], (std::vector<BlockId>{open.blocks[1].local}));
  EXPECT_EQ(piece.ring->history_tokens, (std::vector<int64_t>{4, 4}));
  EXPECT_EQ(piece.ring->wants_logits, (std::vector<bool>{true, false})) << "one samples";
  EXPECT_EQ(piece.ring->token_end, 22);
  EXPECT_EQ(piece.ring->deadline_us, 750);
  EXPECT_EQ(piece.ring->comm_addresses, (std::vector<std::string>{"c0/3", "c0/1"}));
  EXPECT_NE(piece.ring->group, first_group);
  EXPECT_NE(piece.ring->group, piece.ring->moves_group);

  Step(41);
  effects = Do(HandoffDone{{7, 1}, {5}, {512, 512}});
  const CallCommit commit = Of<CallCommit>(effects)[0];
  EXPECT_TRUE(commit.request.has_token);
  EXPECT_EQ(commit.request.token, 41);
  EXPECT_EQ(commit.request.prefill, InstanceId{kSelf});
  EXPECT_EQ(commit.request.times, (PrefillTimes{0, 50, 0}));  // of both chunks
  Do(CommitReplied{{7, 1}, {5}, {}});
  EXPECT_TRUE(ended_.at({7, 1}).ok());
  EXPECT_EQ(Held(), 0);
  EXPECT_TRUE(Of<RunStep>(Start(1)).empty());  // it has ended
}

TEST_F(PrefillSpTest, AMemberThatJoinsReceivesItsHistoryFirst) {
  Effects effects = Assign(Plan(Spec(1, 22), {{8, {1}}, {14, {1, 3}}}, 10));
  EXPECT_TRUE(Of<CallPlaceDecode>(effects).empty());
  EXPECT_EQ(Held(), 3);
  effects = Start(1);
  const StepSequence piece = Of<RunStep>(effects)[0].sequences[0];
  EXPECT_EQ(piece.ring->rank, 1);
  EXPECT_EQ(piece.ring->receive[0].size(), 1u);
  EXPECT_EQ(piece.ring->history, piece.ring->receive[0]);
  EXPECT_FALSE(piece.sample);
  EXPECT_EQ(Of<OpenHandoff>(effects)[0].blocks.size(), 2u);  // what it computes, no more
  EXPECT_TRUE(Of<RunStep>(Start(1)).empty());                // duplicate
  Grant(1, 6);
  Step();
  EXPECT_FALSE(Of<CallCommit>(Do(HandoffDone{{7, 1}, {5}, {256, 256}}))[0].request.has_token);
}

TEST_F(PrefillSpTest, AMemberWithoutTokensTakesPartAndWritesNothing) {
  Assign(Plan(Spec(1, 8), {{8, {1, 2, 3}}}, 10));
  const Effects effects = Start(1);
  EXPECT_TRUE(Of<CallOpenTransfer>(effects).empty() && Of<OpenHandoff>(effects).empty());
  EXPECT_EQ(Of<RunStep>(effects)[0].sequences[0].count, 0);
  Step();
  EXPECT_TRUE(ended_.at({7, 1}).ok());
}

TEST_F(PrefillSpTest, Invariant7PiecesRunInPlanOrderStartedOrNot) {
  Assign(Plan(Spec(1, 8), {{8, {1, 3}}}, 10));
  Assign(Plan(Spec(2, 8), {{8, {1, 3}}}, 20));
  EXPECT_TRUE(Of<RunStep>(Start(2)).empty());
  EXPECT_EQ(Of<RunStep>(Start(1))[0].sequences[0].id, (RequestId{7, 1}));
  EXPECT_EQ(Of<RunStep>(Step())[0].sequences[0].id, (RequestId{7, 2}));
}

TEST_F(PrefillSpTest, PlainPromptsBeforeAPieceGoFirstOthersOnlyWhileItCannotRun) {
  Assign(Plan(Spec(1, 24), {{24, {1, 3}}}, 20));
  Assign({Spec(2, 12), {5}, {30}});
  Placed(2, 3);
  EXPECT_TRUE(Of<RunStep>(Start(1)).empty());  // a plain step is in flight
  Effects effects = Step();                    // the piece goes first now
  EXPECT_EQ(Of<RunStep>(effects)[0].sequences[0].id, (RequestId{7, 1}));
  Assign({Spec(3, 4), {5}, {10}});
  Placed(3, 1);
  effects = Step();
  EXPECT_EQ(Of<RunStep>(effects)[0].sequences.size(), 1u);
  EXPECT_EQ(Of<RunStep>(effects)[0].sequences[0].id, (RequestId{7, 3}));
  EXPECT_EQ(Of<RunStep>(Step())[0].sequences[0].id, (RequestId{7, 1}));
  EXPECT_EQ(Of<RunStep>(Step())[0].sequences[0].id, (RequestId{7, 2}));
}

TEST_F(PrefillSpTest, ACancelBreaksTheStepAndABrokenStepEndsItsRequestAlone) {
  Assign(Plan(Spec(1, 8), {{8, {1, 3}}}, 10));
  Assign(Plan(Spec(2, 8), {{8, {1, 3}}}, 20));
  Start(1);
  Start(2);
  Effects effects = Do(CancelCalled{{{7, 1}, {5}, "test"}});
  EXPECT_EQ(Of<AbortStep>(effects)[0].step, 1u);
  EXPECT_TRUE(Of<BreakGroup>(effects).empty());
  EXPECT_EQ(Held(), 2);
  effects = StepFails(absl::CancelledError("aborted"));
  EXPECT_EQ(Of<CallAbort>(effects)[0].request.prefill, InstanceId{kSelf});
  EXPECT_EQ(Of<RunStep>(effects)[0].sequences[0].id, (RequestId{7, 2}));
  StepFails(absl::DeadlineExceededError("a member stalled"));
  EXPECT_EQ(ended_.at({7, 2}).code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(core_.Snapshot(now_).engine.ok());
  EXPECT_EQ(Held(), 0);
}

TEST_F(PrefillSpTest, OthersAreToldNotToWaitForAPieceThatIsNotEntered) {
  Assign(Plan(Spec(1, 8), {{8, {1, 3}}}, 10));
  const Effects effects = Do(CancelCalled{{{7, 1}, {5}, "test"}});
  ASSERT_EQ(Of<BreakGroup>(effects).size(), 1u);
  EXPECT_EQ(Of<BreakGroup>(effects)[0].rank, 1);
  EXPECT_EQ(Of<BreakGroup>(effects)[0].comm_addresses, (std::vector<std::string>{"c0/1", "c0/3"}));
}

TEST_F(PrefillSpTest, AChunkWithTpRunsInATensorGroupWhichOthersAreToldOfToo) {
  AssignRequest assign = Plan(Spec(1, 16), {{16, {1, 2, 3, 4}}}, 10);
  assign.chunks[0].tp = 3;
  const absl::Status refused = StatusOf(Assign(assign));
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  assign.chunks[0].tp = 2;
  Assign(assign);
  const std::shared_ptr<const RingPart> ring = Of<RunStep>(Start(1))[0].sequences[0].ring;
  EXPECT_EQ(ring->tp, 2);
  Step();
  assign.spec = Spec(2, 16);
  assign.sequence = {20};
  Assign(assign);
  const std::vector<BreakGroup> told = Of<BreakGroup>(Do(CancelCalled{{{7, 2}, {5}, "test"}}));
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].rank, 0);
  EXPECT_EQ(told[0].comm_addresses, (std::vector<std::string>{"c0/3", "c0/4"}));
  EXPECT_EQ(told[1].rank, 2);
  EXPECT_EQ(told[1].comm_addresses.size(), 4u);
}

TEST_F(PrefillSpTest, LaterChunksComeInAssignsOfTheirOwn) {
  const auto spec = Spec(1, 20);
  Assign(Plan(spec, {{8, {3}}}, 10));
  EXPECT_EQ(Held(), 5);  // the whole prompt: nobody else is known
  Effects effects = Placed(1, 5);
  EXPECT_TRUE(Of<OpenHandoff>(effects)[0].more);
  EXPECT_TRUE(Of<RunStep>(Step()).empty());
  const Effects second = Assign(Plan(spec, {{8, {3}}, {12, {3, 1}}}, 20, 1));
  const AddToHandoff add = Of<AddToHandoff>(second)[0];
  EXPECT_FALSE(add.more);
  ASSERT_EQ(add.blocks.size(), 1u);
  EXPECT_EQ(add.blocks[0].global, 2);
  EXPECT_EQ(Of<RunStep>(second)[0].sequences[0].ring->piece.chunk, 1);
  EXPECT_EQ(StatusOf(Assign(Plan(spec, {{12, {3}}, {8, {3, 1}}}, 30, 1))).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(PrefillSpTest, WhoJoinsARunningPlanDoesNotWaitForBlocksForEver) {
  Assign({Spec(1, 40), {5}, {5}});  // all blocks
  AssignRequest join = Plan(Spec(2, 20), {{8, {1}}, {12, {1, 3}}}, 20, 1);
  join.placed = scheduler::Placed{{5}, {4}, "d:1"};
  EXPECT_TRUE(StatusOf(Assign(join)).ok());
  now_ = 1000;
  EXPECT_EQ(core_.NextDeadline(), 1000);
  Do(Tick{});
  EXPECT_EQ(ended_.at({7, 2}).code(), absl::StatusCode::kUnavailable);
}

TEST_F(PrefillSpTest, APlainPromptWithoutDecodeRoomYieldsItsBlocksAfterItsStep) {
  Effects effects = Assign({Spec(1, 40), {5}, {30}});  // all blocks
  EXPECT_EQ(Of<RunStep>(effects).size(), 1u);
  Assign(Plan(Spec(2, 8), {{8, {1, 3}}}, 20));
  EXPECT_TRUE(Of<RunStep>(Start(2)).empty());
  EXPECT_TRUE(NoRoom(1).empty());
  EXPECT_EQ(core_.StateOf({7, 1}), "yielding");
  EXPECT_EQ(Held(), 10) << "the step still writes to them";
  effects = Step();
  EXPECT_EQ(Of<ReleaseSequence>(effects).at(0).id, (RequestId{7, 1}));
  EXPECT_EQ(Of<RunStep>(effects).at(0).sequences[0].id, (RequestId{7, 2}));
  EXPECT_EQ(Held(), 1);
  EXPECT_EQ(core_.StateOf({7, 1}), "queued");
  // It asks, and is computed, anew.
  Grant(2, 2);
  Step();
  Do(HandoffDone{{7, 2}, {5}, {128, 128}});
  effects = Do(CommitReplied{{7, 2}, {5}, {}});
  EXPECT_EQ(Of<CallPlaceDecode>(effects).size(), 1u);
  EXPECT_EQ(Of<OpenHandoff>(effects).size(), 1u);
  EXPECT_EQ(Of<RunStep>(effects).at(0).sequences[0].position, 0);
}

TEST_F(PrefillSpTest, APlainPromptThatIsComputedYieldsItsBlocksAtOnce) {
  Assign({Spec(1, 36, 1), {5}, {30}});  // all but one block
  for (int i = 0; i < 5; ++i) Step(41);
  EXPECT_EQ(core_.StateOf({7, 1}), "computed");
  const auto chunks_done = [this] {
    for (const HeldRequest& one : held_) {
      if (one.id == RequestId{7, 1}) return static_cast<int>(one.chunks_done);
    }
    return -1;
  };
  EXPECT_EQ(chunks_done(), 1);
  Assign(Plan(Spec(2, 16), {{16, {1, 3}}}, 20));
  Start(2);
  const Effects effects = NoRoom(1);
  EXPECT_EQ(Of<ReleaseSequence>(effects).size(), 1u);
  EXPECT_EQ(Of<RunStep>(effects).at(0).sequences[0].id, (RequestId{7, 2}));
  EXPECT_EQ(core_.StateOf({7, 1}), "queued");
  EXPECT_EQ(chunks_done(), 0) << "it will be computed again";
}

TEST_F(PrefillSpTest, OneThatYieldsMayEndInItsStep) {
  Assign({Spec(1, 40), {5}, {30}});
  Assign(Plan(Spec(2, 8), {{8, {1, 3}}}, 20));
  NoRoom(1);
  EXPECT_TRUE(Of<CallAbort>(Do(CancelCalled{{{7, 1}, {5}, "test"}})).empty());
  EXPECT_EQ(core_.StateOf({7, 1}), "ending");
  Step();
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Held(), 1) << "the plan has got its block";
}

// Another instance takes it.
TEST_F(PrefillSpTest, OneThatYieldsAtAnInstanceThatDrainsEnds) {
  Assign({Spec(1, 40), {5}, {30}});
  Assign(Plan(Spec(2, 8), {{8, {1, 3}}}, 20));
  NoRoom(1);
  Do(OrderDrain{true});
  EXPECT_EQ(core_.StateOf({7, 1}), "yielding") << "its step has not ended";
  const Effects effects = Step();
  EXPECT_EQ(Of<ReleaseSequence>(effects).size(), 1u);
  EXPECT_TRUE(Of<RunStep>(effects).empty());
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Held(), 0);
}

TEST_F(PrefillSpTest, AnUnplacedPlainPromptRunsOnlyWhileNoPieceCan) {
  Assign({Spec(1, 24), {5}, {10}});  // it is older, and computes
  Assign(Plan(Spec(2, 8), {{8, {1, 3}}}, 20));
  Start(2);
  EXPECT_EQ(Of<RunStep>(Step()).at(0).sequences[0].id, (RequestId{7, 2}));
  EXPECT_EQ(Of<RunStep>(Step()).at(0).sequences[0].id, (RequestId{7, 1}));
}

TEST_F(PrefillSpTest, ANewerEpochWaitsForTheOlderToLeave) {
  Assign(Plan(Spec(1, 8), {{8, {1, 3}}}, 10));
  Start(1);
  Effects effects = Assign(Plan(Spec(1, 8), {{8, {2, 3}}}, 20, 0, 6));
  EXPECT_TRUE(StatusOf(effects).ok());
  EXPECT_EQ(Of<AbortStep>(effects).size(), 1u);
  now_ = 400'000'000;  // a report is due
  Do(Tick{});
  ASSERT_EQ(held_.size(), 2u);
  EXPECT_EQ(held_.back().epoch, Epoch{6});
  Start(1, 6);
  effects = StepFails(absl::CancelledError("aborted"));
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Of<RunStep>(effects)[0].sequences[0].epoch, Epoch{6});
  Do(CancelCalled{{{7, 1}, {6}, "test"}});
  StepFails(absl::CancelledError("aborted"));
  EXPECT_EQ(Held(), 0);
}

// They are placed only when it is: it would wait for them in vain.
TEST_F(PrefillSpTest, YoungerPlansGiveRoomInFrontToOneThatWaitedForItsOlderEpoch) {
  Assign(Plan(Spec(1, 8), {{8, {3, 1}}}, 10));
  Placed(1, 2);
  Start(1);
  EXPECT_TRUE(Of<CallPlaceDecode>(Assign(Plan(Spec(1, 8), {{8, {3, 1}}}, 20, 0, 6))).empty());
  for (const uint64_t serial : {2, 3}) {
    const Effects effects = Assign(Plan(Spec(serial, 8), {{8, {3, 1}}}, 10 + 10 * serial));
    EXPECT_EQ(Of<CallPlaceDecode>(effects).size(), 1u) << "it is in front";
  }
  StepFails(absl::CancelledError("aborted"));
  const auto asks = Of<CallPlaceDecode>(Do(HandoffStopped{{7, 1}, {5}}));
  ASSERT_EQ(asks.size(), 1u);
  EXPECT_EQ(asks[0].request.id, (RequestId{7, 1}));
  EXPECT_EQ(core_.StateOf({7, 3}), "queued");
}

TEST_F(PrefillSpTest, PlansOfAnOrchestratorThatIsGoneAreNotWaitedFor) {
  Assign(Plan(Spec(1, 8), {{8, {1, 3}}}, 10));
  Assign(Plan(Spec(2, 8), {{8, {1, 3}}}, 20));
  Start(1);
  RegisterAnew();
  EXPECT_EQ(ended_.at({7, 2}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ended_.count({7, 1}), 0u);  // needs nobody any more
  AssignRequest fresh = Plan(Spec(3, 8), {{8, {1, 3}}}, 1000);
  EXPECT_TRUE(StatusOf(Assign(fresh)).ok());
  Start(3);
  EXPECT_EQ(Of<RunStep>(Step())[0].sequences[0].id, (RequestId{7, 3}));
}

// Another orchestrator does not know the plan: it would cancel it nowhere, and the members would
// wait for the one that lacks it until their step's deadline.
TEST_F(PrefillSpTest, ALeadWithoutAStartGivesItsPlanUpUnderAnotherOrchestrator) {
  Assign(Plan(Spec(1, 16), {{16, {3, 1}}}, 10));
  EXPECT_EQ(Of<RunStep>(Placed(1, 4)).size(), 1u);  // it is in the ring with instance 1, or waits
  EXPECT_EQ(Of<AbortStep>(RegisterAnew()).size(), 1u);
  StepFails(absl::CancelledError("aborted"));
  Do(HandoffStopped{{7, 1}, {5}});
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Held(), 0);
}

TEST_F(PrefillSpTest, APlanThatAllMembersHaveOutlivesItsOrchestrator) {
  Assign(Plan(Spec(1, 16), {{16, {3, 1}}}, 10));
  Placed(1, 4);
  Start(1);
  EXPECT_TRUE(Of<AbortStep>(RegisterAnew()).empty());
  EXPECT_EQ(ended_.count({7, 1}), 0u);
}

TEST_F(PrefillSpTest, ALaterChunkMakesAStartWorthlessUntilTheNext) {
  for (const uint64_t serial : {1, 2}) {
    Assign(Plan(Spec(serial, 24), {{8, {1, 3}}}, 10 * serial));
    Start(serial);
    Assign(Plan(Spec(serial, 24), {{8, {1, 3}}, {16, {1, 3}}}, 10 * serial + 5, 1));
  }
  Start(2);
  const Effects effects = RegisterAnew();
  EXPECT_EQ(Of<AbortStep>(effects).size(), 1u);
  EXPECT_EQ(Of<BreakGroup>(effects).size(), 1u) << "that of the later chunk";
  StepFails(absl::CancelledError("aborted"));
  EXPECT_EQ(ended_.at({7, 1}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ended_.count({7, 2}), 0u);
}

TEST_F(PrefillSpTest, BadPlansAreRefusedByName) {
  const auto refused = [&](AssignRequest assign, const char* why) {
    const absl::Status status = StatusOf(Assign(std::move(assign)));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_NE(std::string(status.message()).find(why), std::string::npos) << status;
  };
  refused(Plan(Spec(1, 20), {{6, {3}}, {14, {3}}}, 1), "within a block");
  refused(Plan(Spec(1, 20), {{8, {3}}, {12, {1}}}, 2), "leaves out instance 3");
  refused(Plan(Spec(1, 20), {{20, {3}}}, 3, 1), "adds no chunk");
  refused(Plan(Spec(1, 20), {{20, {1, 2}}, {20, {1, 2, 3}}}, 4), "beyond");
  refused(Plan(Spec(1, 44), {{44, {3}}}, 5), "11 blocks needed here exceed the pool's 10");
  auto logprobs = Spec(1, 20);
  logprobs->want_prompt_logprobs = true;
  refused(Plan(logprobs, {{20, {3}}}, 6), "prompt_logprobs");
  EXPECT_EQ(StatusOf(Assign(Plan(Spec(1, 20), {{20, {1, 2}}}, 7))).code(),
            absl::StatusCode::kFailedPrecondition);
  // What was refused is not waited for.
  Assign(Plan(Spec(2, 8), {{8, {3, 1}}}, 8));
  EXPECT_EQ(Of<RunStep>(Placed(2, 2)).size(), 1u);
}

}  // namespace
}  // namespace skein::scheduler
