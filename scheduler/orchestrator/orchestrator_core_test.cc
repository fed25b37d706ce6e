#include "scheduler/orchestrator/testing/core_testing.h"

#include <gtest/gtest.h>

#include "scheduler/base/held_digest.h"

namespace skein::scheduler {
namespace {

constexpr uint64_t kGeneration = 1;
const KvShape kShape{.model_hash = "h",
                     .dtype = "f32",
                     .block_tokens = 4,
                     .num_layers = 1,
                     .kv_heads = 1,
                     .head_dim = 4,
                     .block_bytes = 128};

SpecPtr Spec(uint64_t serial, int64_t prompt_tokens = 4, int64_t max_tokens = 4) {
  auto spec = std::make_shared<RequestSpec>();
  spec->id = {7, serial};
  spec->model = "m";
  spec->prompt.assign(prompt_tokens, 1);
  spec->max_tokens = max_tokens;
  return spec;
}

class OrchestratorCoreTest : public OrchestratorTest {
 protected:
  OrchestratorCoreTest() {
    core_ = std::make_unique<OrchestratorCore>(OrchestratorConfig{.generation = kGeneration});
  }

  RegisterReply Join(Role role, uint64_t incarnation, const KvShape& shape = kShape,
                     int64_t max_batch_tokens = 8) {
    WorkerIdentity identity{.role = role,
                            .model = "m",
                            .endpoint = "w:" + std::to_string(incarnation),
                            .incarnation = {incarnation},
                            .shape = shape,
                            .total_blocks = 10,
                            .max_positions = 0,
                            .details = "",
                            .max_batch_tokens = max_batch_tokens};
    return Of<AnswerRegister>(Do(RegisterCalled{Call(), {identity}}))[0].reply;
  }
  Effects Report(InstanceId instance, uint64_t incarnation, std::vector<HeldRequest> held = {},
                 std::vector<EndedRequest> ended = {}, int64_t free_blocks = 10) {
    WorkerLoad load;
    load.free_blocks = free_blocks;
    load.total_blocks = 10;
    const uint64_t digest = DigestOf(held);
    return Do(ReportCalled{Call(),
                           {.instance = instance,
                            .incarnation = {incarnation},
                            .serial = ++serial_,
                            .load = load,
                            .held = std::move(held),
                            .full = true,
                            .ended = std::move(ended),
                            .held_digest = digest}});
  }
  InstanceId Up(Role role, uint64_t incarnation) {
    const InstanceId id = Join(role, incarnation).instance;
    Report(id, incarnation);
    return id;
  }
  CallAssign Submit(uint64_t serial, int64_t prompt_tokens = 4, int64_t max_tokens = 4) {
    const Effects effects = Do(SubmitCalled{Spec(serial, prompt_tokens, max_tokens)});
    EXPECT_EQ(Of<CallAssign>(effects).size(), 1u);
    const CallAssign assign = Of<CallAssign>(effects)[0];
    Do(AssignReplied{
        assign.instance, {7, serial}, assign.request.epoch, {}, assign.request.sequence});
    return assign;
  }
  // Its lead asks for a decode instance.
  Effects Ask(const CallAssign& assign, InstanceId refused_by = {},
              absl::Status why = absl::OkStatus()) {
    return Do(PlaceDecodeCalled{Call(),
                                {.instance = assign.instance,
                                 .incarnation = {1},
                                 .id = assign.request.spec->id,
                                 .epoch = assign.request.epoch,
                                 .refused_by = refused_by,
                                 .why = std::move(why)}});
  }
  // The decode instance that was named with the plan took its blocks.
  Effects Opened(const CallAssign& assign) {
    return Do(TransferOpened{assign.request.placed->decode, assign.request.spec->id,
                             assign.request.epoch});
  }
  // Submits a request and brings it to the state `placed`.
  CallAssign Place(uint64_t serial) {
    const CallAssign assign = Submit(serial);
    Opened(assign);
    return assign;
  }
  // Whom the lead's question was answered with; 0: it was not.
  static InstanceId PlacedAt(const Effects& effects) {
    const auto answers = Of<AnswerPlaceDecode>(effects);
    return answers.empty() ? InstanceId{} : answers[0].reply.placed.decode;
  }
};

TEST_F(OrchestratorCoreTest, ARequestIsPlannedPlacedAndEnded) {
  const InstanceId prefill = Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const CallAssign assign = Submit(1);
  EXPECT_EQ(assign.instance, prefill);
  EXPECT_EQ(GenerationOf(assign.request.epoch.value), kGeneration);
  ASSERT_TRUE(assign.request.placed.has_value());
  EXPECT_EQ(assign.request.placed->decode, decode);
  EXPECT_EQ(core_->Snapshot(now_).assigned, 1);
  EXPECT_EQ(Updates<Placed>(Opened(assign))[0].endpoint, "w:2");
  EXPECT_EQ(core_->Snapshot(now_).placed, 1);
  EXPECT_TRUE(Opened(assign).empty()) << "a resync may tell it once more";
  Report(prefill, 1, {}, {{{7, 1}, assign.request.epoch, FinishReason::kStop, {}}});
  const Effects ended =
      Report(decode, 2, {}, {{{7, 1}, assign.request.epoch, FinishReason::kLength, {}}});
  EXPECT_EQ(Ends(ended).size(), 1u);
  EXPECT_TRUE(Of<CallCancel>(ended).empty());
  EXPECT_EQ(core_->Snapshot(0).placed, 0);
}

TEST_F(OrchestratorCoreTest, UnknownModelsAndEmptyPoolsFailAtOnce) {
  const Effects unknown = Do(SubmitCalled{Spec(1)});
  EXPECT_EQ(Updates<Failed>(unknown)[0].status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Ends(unknown).size(), 1u);
  Up(Role::kPrefill, 1);
  const Effects no_decode = Do(SubmitCalled{Spec(1)});
  EXPECT_EQ(Updates<Failed>(no_decode)[0].status.code(), absl::StatusCode::kUnavailable);
  Up(Role::kDecode, 2);
  const Effects too_long = Do(SubmitCalled{Spec(1, 30, 30)});
  EXPECT_EQ(Updates<Failed>(too_long)[0].status.code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(OrchestratorCoreTest, Invariant5AnotherModelHashIsRefusedByName) {
  Up(Role::kPrefill, 1);
  KvShape other = kShape;
  other.model_hash = "x";
  EXPECT_EQ(Join(Role::kDecode, 2, other).status,
            absl::FailedPreconditionError("model m: model_hash: this worker x, its instances h"));
}

TEST_F(OrchestratorCoreTest, Invariant5EveryFieldOfTheKvShapeIsCompared) {
  Up(Role::kPrefill, 1);
  const auto refusal_of = [this](auto change) {
    KvShape other = kShape;
    change(other);
    const absl::Status status = Join(Role::kDecode, 2, other).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  const std::string ours = "model m: ";
  EXPECT_EQ(refusal_of([](KvShape& s) { s.kv_format = 2; }),
            ours + "kv_format: this worker 2, its instances 1");
  EXPECT_EQ(refusal_of([](KvShape& s) { s.dtype = "bf16"; }),
            ours + "dtype: this worker bf16, its instances f32");
  EXPECT_EQ(refusal_of([](KvShape& s) { s.layout_tp = 2; }),
            ours + "layout_tp: this worker 2, its instances 1");
  EXPECT_EQ(refusal_of([](KvShape& s) { s.block_tokens = 8; }),
            ours + "block_tokens: this worker 8, its instances 4");
  EXPECT_EQ(refusal_of([](KvShape& s) { s.num_layers = 2; }),
            ours + "num_layers: this worker 2, its instances 1");
  EXPECT_EQ(refusal_of([](KvShape& s) { s.kv_heads = 2; }),
            ours + "kv_heads: this worker 2, its instances 1");
  EXPECT_EQ(refusal_of([](KvShape& s) { s.head_dim = 8; }),
            ours + "head_dim: this worker 8, its instances 4");
  EXPECT_EQ(refusal_of([](KvShape& s) { s.block_bytes = 64; }),
            ours + "block_bytes: this worker 64, its instances 128");
}

TEST_F(OrchestratorCoreTest, Invariant5PrefillInstancesThatCutChunksOtherwiseAreRefusedByName) {
  Up(Role::kPrefill, 1);
  EXPECT_EQ(Join(Role::kPrefill, 2, kShape, 16).status,
            absl::FailedPreconditionError("model m: max_batch_tokens: this worker 16, its prefill "
                                          "instances 8"));
  EXPECT_TRUE(Join(Role::kDecode, 3, kShape, 16).status.ok());
  EXPECT_TRUE(Join(Role::kPrefill, 4).status.ok());
}

TEST_F(OrchestratorCoreTest, ARefusedAssignIsTriedElsewhereUnderANewEpoch) {
  const InstanceId first = Up(Role::kPrefill, 1);
  const InstanceId second = Up(Role::kPrefill, 3);
  Up(Role::kDecode, 2);
  const CallAssign one = Of<CallAssign>(Do(SubmitCalled{Spec(1)}))[0];
  EXPECT_EQ(one.instance, first);
  const Effects effects = Do(AssignReplied{first,
                                           {7, 1},
                                           one.request.epoch,
                                           {absl::ResourceExhaustedError("full")},
                                           one.request.sequence});
  const CallAssign two = Of<CallAssign>(effects)[0];
  EXPECT_EQ(two.instance, second);
  EXPECT_GT(two.request.epoch, one.request.epoch);
  EXPECT_EQ(Of<CallCancel>(effects)[0].instance, first);
  const Effects parked = Do(AssignReplied{
      second, {7, 1}, two.request.epoch, {absl::UnavailableError("no")}, two.request.sequence});
  EXPECT_TRUE(Updates<Failed>(parked).empty());
  EXPECT_EQ(core_->Snapshot(now_).parked, 1);
  EXPECT_EQ(Of<CallAssign>(Report(first, 1)).at(0).instance, first);
}

TEST_F(OrchestratorCoreTest, Invariant3WaitingForDecodeRoomIsFirstComeFirstServed) {
  Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  Report(decode, 2, {}, {}, 3);
  const CallAssign large = Submit(1, 12, 8);  // 5 blocks
  EXPECT_FALSE(large.request.placed.has_value());
  EXPECT_EQ(PlacedAt(Ask(large)), InstanceId{});
  const CallAssign small = Submit(2, 4, 4);  // 2 blocks
  EXPECT_FALSE(small.request.placed.has_value()) << "it does not overtake";
  EXPECT_EQ(PlacedAt(Ask(small)), InstanceId{});
  EXPECT_EQ(core_->Snapshot(now_).waiting, 2);
  const Effects room = Report(decode, 2, {}, {}, 8);
  ASSERT_EQ(Of<AnswerPlaceDecode>(room).size(), 2u);
  EXPECT_EQ(Of<AnswerPlaceDecode>(room)[0].id, (RequestId{7, 1}));
  EXPECT_EQ(Of<CallAnnounce>(room).size(), 2u);
  EXPECT_EQ(core_->Snapshot(now_).reserving, 2);
}

// A burst does not choose one instance: what was placed counts before its blocks are taken.
TEST_F(OrchestratorCoreTest, PlansOfABurstAreSpreadByVirtualUsage) {
  Up(Role::kPrefill, 1);
  const InstanceId first = Up(Role::kDecode, 2);
  const InstanceId second = Up(Role::kDecode, 3);
  std::map<InstanceId, int> placed;
  std::vector<CallAssign> assigns;
  for (uint64_t serial = 1; serial <= 10; ++serial) {
    assigns.push_back(Submit(serial));  // of 2 blocks; there are 20
    ++placed[assigns.back().request.placed->decode];
  }
  EXPECT_EQ(placed, (std::map<InstanceId, int>{{first, 5}, {second, 5}}));
  const CallAssign more = Submit(11);
  EXPECT_FALSE(more.request.placed.has_value()) << "all room is spoken for";
  // Nobody has taken a block, and the lead of this one is about to start.
  EXPECT_EQ(PlacedAt(Ask(more)), first);
  EXPECT_EQ(Of<CallWithdraw>(Ask(assigns[0], first, absl::ResourceExhaustedError("blocks"))).size(),
            1u);
}

// Those that were placed with their plans stand in queues behind the one that asks: they may not
// keep it waiting. Those whose leads open right now count.
TEST_F(OrchestratorCoreTest, WhoAsksIsNotKeptWaitingByWhatIsOnlyAnnounced) {
  Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const CallAssign one = Submit(1, 12, 8);  // 5 of 10 blocks
  const CallAssign two = Submit(2, 12, 8);
  ASSERT_TRUE(one.request.placed.has_value() && two.request.placed.has_value());
  const CallAssign three = Submit(3, 12, 8);
  const CallAssign four = Submit(4, 12, 8);
  const CallAssign five = Submit(5, 12, 8);
  EXPECT_EQ(PlacedAt(Ask(three)), decode);
  EXPECT_EQ(PlacedAt(Ask(four)), decode);
  EXPECT_EQ(PlacedAt(Ask(five)), InstanceId{}) << "two leads open there now";
  Do(TransferOpened{decode, {7, 3}, three.request.epoch});
  Do(TransferOpened{decode, {7, 4}, four.request.epoch});
  EXPECT_EQ(PlacedAt(Ask(one, decode, absl::ResourceExhaustedError("blocks"))), InstanceId{});
  EXPECT_EQ(core_->Snapshot(now_).waiting, 2);
  const auto room = Of<AnswerPlaceDecode>(
      Report(decode, 2, {{.id = {7, 4}, .epoch = four.request.epoch, .opened = true}},
             {{{7, 3}, three.request.epoch, FinishReason::kLength, {}}}, 5));
  ASSERT_EQ(room.size(), 1u) << "first come, first served";
  EXPECT_EQ(room[0].id, (RequestId{7, 5}));
}

TEST_F(OrchestratorCoreTest, AQuestionForAPlaceIsAnsweredWithinItsWait) {
  Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  Report(decode, 2, {}, {}, 0);
  const CallAssign assign = Submit(1);
  Ask(assign);
  std::vector<AnswerPlaceDecode> answers;
  while (answers.empty() && now_ < 6 * kSecondUs) {
    now_ += kSecondUs;
    answers = Of<AnswerPlaceDecode>(Report(decode, 2, {}, {}, 0));
    Report(assign.instance, 1, {{{7, 1}, assign.request.epoch}});
  }
  EXPECT_EQ(now_, 5 * kSecondUs);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].reply.status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(core_->Snapshot(now_).waiting, 1);  // it keeps its place
  const CallAssign next = Submit(2);
  Report(decode, 2, {}, {}, 2);
  EXPECT_EQ(core_->Snapshot(now_).waiting, 1) << "its lead does not ask now";
  EXPECT_EQ(PlacedAt(Ask(next)), decode) << "and holds up nobody";
}

TEST_F(OrchestratorCoreTest, AFullDecodeInstanceIsNotAskedAgainBeforeItsNextReport) {
  Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const CallAssign assign = Submit(1);
  const Effects refused = Ask(assign, decode, absl::ResourceExhaustedError("blocks"));
  EXPECT_EQ(PlacedAt(refused), InstanceId{});
  ASSERT_EQ(Of<CallWithdraw>(refused).size(), 1u);
  EXPECT_EQ(Of<CallWithdraw>(refused)[0].instance, decode);
  EXPECT_EQ(PlacedAt(Report(decode, 2)), decode) << "the same epoch is announced again";
  const DegradedCounts degraded = core_->Snapshot(now_).degraded;
  EXPECT_EQ(degraded[static_cast<size_t>(Degraded::kDecodeFull)], 1u);
  EXPECT_EQ(degraded[static_cast<size_t>(Degraded::kReplanned)], 0u);
}

TEST_F(OrchestratorCoreTest, APlaceThatCannotBeReachedIsWithdrawnAndMadeElsewhere) {
  Up(Role::kPrefill, 1);
  const InstanceId first = Up(Role::kDecode, 2);
  const InstanceId second = Up(Role::kDecode, 3);
  const CallAssign assign = Submit(1);
  EXPECT_EQ(assign.request.placed->decode, first);
  const Effects effects = Ask(assign, first, absl::DeadlineExceededError("late"));
  EXPECT_EQ(Of<CallWithdraw>(effects)[0].instance, first);
  EXPECT_EQ(Of<CallAnnounce>(effects)[0].instance, second);
  EXPECT_EQ(PlacedAt(effects), second);
  EXPECT_TRUE(Opened(assign).empty()) << "at the first: too late";
  EXPECT_EQ(PlacedAt(Ask(assign)), second) << "the answer was lost";
}

TEST_F(OrchestratorCoreTest, ADecodeInstanceThatDiesBeforeItIsOpenedCostsOnlyThePlan) {
  const InstanceId prefill = Up(Role::kPrefill, 1);
  const InstanceId first = Up(Role::kDecode, 2);
  const InstanceId second = Up(Role::kDecode, 3);
  const CallAssign assign = Submit(1);
  ASSERT_EQ(assign.request.placed->decode, first);
  const Effects lost = Do(UnregisterCalled{Call(), {first, {2}}});
  EXPECT_TRUE(Updates<Failed>(lost).empty());
  EXPECT_EQ(Of<CallCancel>(lost).at(0).instance, prefill);
  const auto again = Of<CallAssign>(Report(
      prefill, 1, {},
      {{{7, 1}, assign.request.epoch, FinishReason::kCancelled, absl::CancelledError("c")}}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].request.placed->decode, second);
}

TEST_F(OrchestratorCoreTest, AnEndForTheClientCancelsEverywhere) {
  Up(Role::kPrefill, 1);
  Up(Role::kDecode, 2);
  Place(1);
  const Effects effects = Do(Closed({7, 1}));
  EXPECT_EQ(Of<CallCancel>(effects).size(), 2u);
  EXPECT_TRUE(Of<SendPlanUpdate>(effects).empty());
  EXPECT_TRUE(Do(Closed({7, 1})).empty());
}

TEST_F(OrchestratorCoreTest, ARoutersCloseThatDecodeTellsFirstIsNoFailure) {
  const InstanceId prefill = Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const auto left = [](const CallAssign& placed) {
    return EndedRequest{placed.request.spec->id, placed.request.epoch, FinishReason::kCancelled,
                        absl::CancelledError("the router closed the stream")};
  };
  const CallAssign streaming = Place(1);
  Report(prefill, 1, {}, {{{7, 1}, streaming.request.epoch, FinishReason::kStop, {}}});
  const Effects one = Report(decode, 2, {}, {left(streaming)});
  EXPECT_EQ(Updates<PlanEnded>(one).size(), 1u);
  EXPECT_TRUE(Of<CallCancel>(one).empty());
  EXPECT_EQ(core_->Explain("7/1", now_).at(0).state, "ended by its router");
  EXPECT_TRUE(Do(Closed({7, 1})).empty());
  EXPECT_EQ(core_->Explain("7/1", now_).at(0).state, "client disconnected");

  const CallAssign computing = Place(2);
  const Effects two = Report(decode, 2, {}, {left(computing)});
  EXPECT_EQ(Updates<PlanEnded>(two).size(), 1u);
  EXPECT_TRUE(Updates<Failed>(two).empty());
  ASSERT_EQ(Of<CallCancel>(two).size(), 1u);
  EXPECT_EQ(Of<CallCancel>(two)[0].instance, prefill);
  EXPECT_EQ(core_->Explain("7/2", now_).at(0).state, "cancelled by its router");
  Report(prefill, 1, {}, {{{7, 2}, computing.request.epoch, FinishReason::kStop, {}}});
  EXPECT_EQ(core_->Explain("7/2", now_).at(0).state, "ended by its router");
  EXPECT_EQ(core_->Snapshot(now_).failed, 0u);

  const CallAssign aborted = Place(3);  // by its prefill instance
  EndedRequest end = left(aborted);
  end.reason = FinishReason::kError;
  EXPECT_EQ(Updates<Failed>(Report(decode, 2, {}, {end})).size(), 1u);
  EXPECT_EQ(core_->Snapshot(now_).failed, 1u);
}

TEST_F(OrchestratorCoreTest, ADeadDecodeInstanceFailsOnceWhatItAloneHas) {
  const InstanceId prefill = Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const CallAssign committed = Place(1);
  const CallAssign computing = Place(2);
  Until(2 * kSecondUs);
  Report(prefill, 1, {{{7, 2}, computing.request.epoch}},
         {{{7, 1}, committed.request.epoch, FinishReason::kStop, {}}});
  const Effects effects = Until(4 * kSecondUs);
  ASSERT_EQ(Updates<Failed>(effects).size(), 1u);
  EXPECT_EQ(Updates<Failed>(effects)[0].status.code(), absl::StatusCode::kUnavailable);
  ASSERT_EQ(Ends(effects).size(), 1u);
  EXPECT_EQ(Ends(effects)[0].id, (RequestId{7, 1}));
  // The other one is planned anew when its prefill instance says that it has ended there.
  ASSERT_EQ(Of<CallCancel>(effects).size(), 1u);
  EXPECT_EQ(Of<CallCancel>(effects)[0].instance, prefill);
  EXPECT_EQ(Of<CallCancel>(effects)[0].request.id, (RequestId{7, 2}));
  const Effects left = Report(prefill, 1, {},
                              {{{7, 2},
                                computing.request.epoch,
                                FinishReason::kCancelled,
                                absl::CancelledError("planned anew")}});
  ASSERT_EQ(Of<CallAssign>(left).size(), 1u);
  EXPECT_GT(Of<CallAssign>(left)[0].request.epoch, computing.request.epoch);
  const auto late = Of<AnswerReport>(Report(decode, 2))[0].reply;
  EXPECT_EQ(late.status.code(), absl::StatusCode::kNotFound);
}

TEST_F(OrchestratorCoreTest, ADeadPrefillInstanceFailsWhatIsNotPlacedYet) {
  Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const CallAssign placed = Place(1);
  Submit(2);
  Until(2 * kSecondUs);
  Report(decode, 2, {{{7, 1}, placed.request.epoch}});
  const Effects effects = Until(4 * kSecondUs);
  ASSERT_EQ(Ends(effects).size(), 1u);
  EXPECT_EQ(Ends(effects)[0].id, (RequestId{7, 2}));
  // The decode instance knows whether request 1 was committed: its lease decides.
  const Effects lease_over = Report(
      decode, 2, {},
      {{{7, 1}, placed.request.epoch, FinishReason::kError, absl::UnavailableError("lease")}});
  EXPECT_TRUE(absl::IsUnavailable(Updates<Failed>(lease_over).at(0).status));
}

TEST_F(OrchestratorCoreTest, ADrainingInstanceGetsNothingNewAndHandsBackIsPlannedAnew) {
  const InstanceId first = Up(Role::kPrefill, 1);
  const InstanceId second = Up(Role::kPrefill, 3);
  Up(Role::kDecode, 2);
  const CallAssign assign = Submit(1);
  EXPECT_EQ(assign.instance, first);
  WorkerLoad load;
  load.draining = true;
  const Effects back = Do(ReportCalled{Call(),
                                       {.instance = first,
                                        .incarnation = {1},
                                        .serial = ++serial_,
                                        .load = load,
                                        .held = {},
                                        .ended = {{{7, 1},
                                                   assign.request.epoch,
                                                   FinishReason::kError,
                                                   absl::UnavailableError("handed back")}}}});
  EXPECT_EQ(Of<CallAssign>(back)[0].instance, second);
  EXPECT_EQ(Submit(2).instance, second);
}

TEST_F(OrchestratorCoreTest, ANewProcessAtAnEndpointReplacesTheOldOne) {
  const InstanceId prefill = Up(Role::kPrefill, 1);
  Up(Role::kDecode, 2);
  const CallAssign placed = Place(1);
  Report(prefill, 1, {}, {{{7, 1}, placed.request.epoch, FinishReason::kStop, {}}});
  WorkerIdentity identity{.role = Role::kDecode,
                          .model = "m",
                          .endpoint = "w:2",
                          .incarnation = {77},
                          .shape = kShape,
                          .total_blocks = 10,
                          .max_positions = 0,
                          .details = ""};
  EXPECT_EQ(Updates<Failed>(Do(RegisterCalled{Call(), {identity}})).size(), 1u);
}

TEST_F(OrchestratorCoreTest, ReportsTellWhatChangedAndADigestThatDoesNotFitAsksForAll) {
  Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const auto one = Submit(1);
  const auto two = Submit(2);
  std::vector<HeldRequest> all = {{.id = {7, 1}, .epoch = one.request.epoch, .opened = true},
                                  {.id = {7, 2}, .epoch = two.request.epoch}};
  const auto report = [&](ReportRequest changes) {
    changes.instance = decode;
    changes.incarnation = {2};
    changes.serial = ++serial_;
    changes.load.free_blocks = changes.load.total_blocks = 10;
    const ReportReply reply = Of<AnswerReport>(Do(ReportCalled{Call(), changes})).at(0).reply;
    EXPECT_TRUE(reply.status.ok());
    return reply.want_full;
  };
  const auto virtual_blocks = [&] { return core_->Snapshot(now_).instances.at(1).virtual_blocks; };
  EXPECT_EQ(virtual_blocks(), 4);
  EXPECT_FALSE(report({.held = all, .held_digest = DigestOf(all)}));
  EXPECT_EQ(virtual_blocks(), 2) << "the blocks of one were taken";
  EXPECT_FALSE(report({.held_digest = DigestOf(all)})) << "nothing has changed";
  EXPECT_EQ(virtual_blocks(), 2);
  all[1].opened = true;
  EXPECT_FALSE(report({.held = {all[1]}, .held_digest = DigestOf(all)}));
  EXPECT_EQ(virtual_blocks(), 0);
  EXPECT_TRUE(report({.held_digest = DigestOf(all) + 1})) << "corrupted";
  EXPECT_EQ(core_->Snapshot(now_).digest_mismatches, 1u);
  EXPECT_FALSE(report({.held = all, .full = true, .held_digest = DigestOf(all)}));
  EXPECT_FALSE(report({.gone = {all[1]}, .held_digest = DigestOf({all[0]})}));
  EXPECT_EQ(virtual_blocks(), 2) << "it is placed there, and was withdrawn";
  EXPECT_FALSE(report({.held = {all[1]}, .gone = {all[1]}, .held_digest = DigestOf(all)}))
      << "withdrawn and announced again";
  EXPECT_EQ(core_->Snapshot(now_).digest_mismatches, 1u);
}

TEST_F(OrchestratorCoreTest, AnInstanceIsPlacedAtFromItsRegistrationOn) {
  Up(Role::kDecode, 2);
  WorkerIdentity identity{.role = Role::kPrefill,
                          .model = "m",
                          .endpoint = "w:1",
                          .incarnation = {1},
                          .shape = kShape,
                          .total_blocks = 10,
                          .details = ""};
  WorkerLoad load;
  load.free_blocks = load.total_blocks = 10;
  Do(RegisterCalled{Call(), {.identity = identity, .held = {}, .ended = {}, .load = load}});
  Submit(1);
}

// It is placeable at once, so what its predecessor leaves behind may go there.
TEST_F(OrchestratorCoreTest, AnInstanceIsWelcomedBeforeItIsTold) {
  Up(Role::kPrefill, 1);
  Up(Role::kDecode, 2);
  Submit(1);
  WorkerIdentity identity{.role = Role::kPrefill,
                          .model = "m",
                          .endpoint = "w:1",
                          .incarnation = {77},
                          .shape = kShape,
                          .total_blocks = 10,
                          .details = "",
                          .max_batch_tokens = 8};
  const Effects effects = Do(RegisterCalled{Call(), {identity}});
  ASSERT_EQ(Of<CallAssign>(effects).size(), 1u);
  EXPECT_TRUE(std::holds_alternative<AnswerRegister>(effects.front()));
  EXPECT_EQ(Of<CallAssign>(effects)[0].instance, Of<AnswerRegister>(effects)[0].reply.instance);
}

TEST_F(OrchestratorCoreTest, AStaleEpochIsRefused) {
  Up(Role::kPrefill, 1);
  Up(Role::kDecode, 2);
  const CallAssign assign = Submit(1);
  const Effects effects = Do(PlaceDecodeCalled{
      Call(), {assign.instance, {1}, {7, 1}, Epoch{assign.request.epoch.value - 1}}});
  EXPECT_EQ(Of<AnswerPlaceDecode>(effects)[0].reply.status.code(),
            absl::StatusCode::kFailedPrecondition);
  const Effects unknown = Do(PlaceDecodeCalled{Call(), {assign.instance, {1}, {7, 9}, {5}}});
  EXPECT_EQ(Of<AnswerPlaceDecode>(unknown)[0].reply.status.code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace skein::scheduler
