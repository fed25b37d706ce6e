// A DecodeCore whose engine, or a sequence in it, fails.
#include <gtest/gtest.h>

#include "scheduler/worker/testing/decode_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::DecodeCoreTest;
using testing::DecodeTestConfig;
using testing::kStepTimeoutUs;
using testing::Of;
using testing::Spec;

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
    ASSERT_LE(now_, failed_us + DecodeTestConfig().engine.last_words_us);
  }
}

// The engine fails while no orchestrator can be reached, and none comes. `attached`: the router has
// got a token. When the worker leaves:
TimeUs LeavesWithoutAnOrchestrator(bool attached) {
  DecodeConfig config = DecodeTestConfig();
  config.engine.evidence_us = 60 * kSecondUs;
  DecodeCore core(config);
  TimeUs now = 0;
  const auto handle = [&](const DecodeEvent& event) {
    std::vector<DecodeEffect> effects = core.Handle(event, now);
    EXPECT_TRUE(core.CheckInvariants().ok()) << core.CheckInvariants();
    return effects;
  };
  handle(Tick{});
  handle(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}});
  const auto spec = Spec(1);
  spec->deadline_us = 40 * kSecondUs;
  handle(AnnounceCalled{{spec, {5}, {{2}}}, absl::OkStatus()});
  handle(OpenTransferCalled{
      {1}, {spec->id, {5}, {1}, {2}, DecodeTestConfig().membership.identity.shape}});
  if (attached) handle(AttachCalled{{50}, spec->id, {5}});
  const auto steps = Of<RunStep>(handle(CommitCalled{
      {2}, {.id = spec->id, .epoch = {5}, .bytes_per_layer = {256, 256}, .prefill = {1}}}));
  const Disconnected away{absl::UnavailableError("away")};
  handle(away);
  auto effects = handle(StepDone{steps.at(0).step, absl::InternalError("device"), {}});
  while (Of<Drained>(effects).empty() && now < 100 * kSecondUs) {
    if (Of<CallRegister>(effects).empty()) {
      now = core.NextDeadline();
      effects = handle(Tick{});
    } else {
      effects = handle(away);
    }
  }
  return now;
}

// An orchestrator that comes back may plan the request again, and must know of the failure.
TEST(DecodeCoreEvidence, AWorkerWaitsForAnOrchestratorWhileItsRequestMayBePlannedAgain) {
  const TimeUs left_us = LeavesWithoutAnOrchestrator(/*attached=*/false);
  EXPECT_GE(left_us, 39 * kSecondUs);
  EXPECT_LT(left_us, 60 * kSecondUs);
}

TEST(DecodeCoreEvidence, ItDoesNotWaitForARequestWhoseRouterHasTokens) {
  EXPECT_LT(LeavesWithoutAnOrchestrator(/*attached=*/true), 5 * kSecondUs);
}

TEST(DecodeCoreProbes, AnIdleEngineIsProbedAndNothingCountsIt) {
  DecodeConfig config = DecodeTestConfig();
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

}  // namespace
}  // namespace skein::scheduler
