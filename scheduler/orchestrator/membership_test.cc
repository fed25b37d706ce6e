// Instances come, report, drain and die.
#include "scheduler/orchestrator/testing/plain_testing.h"

namespace skein::scheduler {
namespace {

TEST_F(OrchestratorCoreTest, Invariant5AnotherModelHashIsRefusedByName) {
  Up(Role::kPrefill, 1);
  HandoffShape other = kShape;
  other.model_hash = "x";
  EXPECT_EQ(Join(Role::kDecode, 2, other).status,
            absl::FailedPreconditionError("model m: model_hash: this worker x, its instances h"));
}

TEST_F(OrchestratorCoreTest, Invariant5EveryFieldOfTheShapeIsCompared) {
  Up(Role::kPrefill, 1);
  const auto refusal_of = [this](auto change) {
    HandoffShape other = kShape;
    change(other);
    const absl::Status status = Join(Role::kDecode, 2, other).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  const std::string ours = "model m: ";
  EXPECT_EQ(refusal_of([](HandoffShape& s) { s.kv_format = 2; }),
            ours + "kv_format: this worker 2, its instances 1");
  EXPECT_EQ(refusal_of([](HandoffShape& s) { s.dtype = DType::kBF16; }),
            ours + "dtype: this worker bf16, its instances f32");
  EXPECT_EQ(refusal_of([](HandoffShape& s) { s.layout.tp = 2; }),
            ours + "layout_tp: this worker 2, its instances 1");
  EXPECT_EQ(refusal_of([](HandoffShape& s) { s.block_tokens = 8; }),
            ours + "block_tokens: this worker 8, its instances 4");
  EXPECT_EQ(refusal_of([](HandoffShape& s) { s.num_layers = 2; }),
            ours + "num_layers: this worker 2, its instances 1");
  EXPECT_EQ(refusal_of([](HandoffShape& s) { s.kv_heads = 2; }),
            ours + "kv_heads: this worker 2, its instances 1");
  EXPECT_EQ(refusal_of([](HandoffShape& s) { s.head_dim = 8; }),
            ours + "head_dim: this worker 8, its instances 4");
}

TEST_F(OrchestratorCoreTest, Invariant5PrefillInstancesThatCutChunksOtherwiseAreRefusedByName) {
  Up(Role::kPrefill, 1);
  EXPECT_EQ(Join(Role::kPrefill, 2, kShape, 16).status,
            absl::FailedPreconditionError("model m: max_batch_tokens: this worker 16, its prefill "
                                          "instances 8"));
  EXPECT_TRUE(Join(Role::kDecode, 3, kShape, 16).status.ok());
  EXPECT_TRUE(Join(Role::kPrefill, 4).status.ok());
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

}  // namespace
}  // namespace skein::scheduler
