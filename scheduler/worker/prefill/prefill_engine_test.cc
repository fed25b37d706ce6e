// A PrefillCore whose engine, or a sequence in it, fails.
#include <gtest/gtest.h>

#include "scheduler/worker/steps/nan_steps.h"
#include "scheduler/worker/testing/prefill_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::kLastWordsUs;
using testing::kStepTimeoutUs;
using testing::Of;
using testing::PrefillCoreTest;
using testing::PrefillTestConfig;
using testing::Spec;

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

// The orchestrator is away for longer than the last words have time.
TEST(PrefillCoreEvidence, AnOrchestratorThatComesBackLateHearsWhatTheEngineFailedUnder) {
  PrefillConfig config = PrefillTestConfig();
  config.engine.evidence_us = 60 * kSecondUs;
  PrefillCore core(config);
  core.Handle(Tick{}, 1);
  core.Handle(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}}, 2);
  auto spec = std::make_shared<RequestSpec>(*Spec(1));
  spec->deadline_us = 40 * kSecondUs;
  const auto steps = Of<RunStep>(core.Handle(AssignCalled{{1}, {spec, {5}, {1}}}, 3));
  ASSERT_EQ(steps.size(), 1u);
  core.Handle(PlaceDecodeReplied{{7, 1}, {5}, {{}, {{5}, {4}, "d:1"}}}, 4);
  core.Handle(OpenTransferReplied{{7, 1}, {5}, {{}, {{8}, {9}}, {}, "memory", 900}}, 5);
  const Disconnected away{absl::UnavailableError("away")};
  core.Handle(away, 6);
  core.Handle(StepDone{steps[0].step, absl::InternalError("device"), {}}, 7);
  TimeUs now = 7;
  auto effects = core.Handle(HandoffStopped{{7, 1}, {5}}, now);
  while (now < 30 * kSecondUs || Of<CallRegister>(effects).empty()) {
    ASSERT_TRUE(Of<Drained>(effects).empty()) << now;
    if (!Of<CallRegister>(effects).empty()) core.Handle(away, now);
    now = core.NextDeadline();
    effects = core.Handle(Tick{}, now);
  }
  const std::vector<EndedRequest> told = Of<CallRegister>(effects)[0].request.ended;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].engine_failed);
  effects = core.Handle(RegisterReplied{{absl::OkStatus(), {4}, 1'000'000'000}}, now);
  EXPECT_EQ(Of<CallUnregister>(effects).size(), 1u);
}

TEST(PrefillCoreProbes, AProbeDelaysABatchByThatOneStep) {
  PrefillConfig config = PrefillTestConfig();
  config.engine.probe_interval_us = 1000;
  config.engine.probe_block = {10};
  PrefillCore core(config);
  const uint64_t first = Of<RunStep>(core.Handle(Tick{}, 1)).at(0).step;
  core.Handle(StepDone{first, {}, {{.token = 1, .payload = "p"}}}, 1);
  core.Handle(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}}, 2);
  const std::vector<RunStep> probe = Of<RunStep>(core.Handle(Tick{}, 1001));
  ASSERT_EQ(probe.size(), 1u);
  EXPECT_TRUE(probe[0].probe);
  const AssignCalled assign{{1}, {Spec(1), {5}, {1}}};
  EXPECT_TRUE(Of<RunStep>(core.Handle(assign, 1004)).empty()) << "the probe is in flight";
  const auto effects = core.Handle(StepDone{probe[0].step, {}, {{}}}, 1005);
  ASSERT_EQ(Of<RunStep>(effects).size(), 1u);
  EXPECT_FALSE(Of<RunStep>(effects)[0].probe);
  EXPECT_TRUE(core.CheckInvariants().ok());
  EXPECT_EQ(core.Snapshot(1005).steps, 1u);
  EXPECT_EQ(core.Snapshot(1005).prompt_tokens, 0u);
}

TEST(PrefillCoreProbes, AfterNothingButNanTheNextStepIsAProbe) {
  PrefillConfig config = PrefillTestConfig();
  config.engine.probe_interval_us = kSecondUs;
  config.engine.probe_block = {10};
  PrefillCore core(config);
  uint64_t step = Of<RunStep>(core.Handle(Tick{}, 1)).at(0).step;
  core.Handle(StepDone{step, {}, {{.token = 1, .payload = "p"}}}, 2);
  core.Handle(RegisterReplied{{absl::OkStatus(), {3}, 1'000'000'000}}, 2);
  const auto run = [&core](uint64_t serial) {
    const auto effects = core.Handle(AssignCalled{{serial}, {Spec(serial, 2), {5}, {serial}}}, 3);
    core.Handle(PlaceDecodeReplied{{7, serial}, {5}, {{}, {{5}, {4}, "d:1"}}}, 3);
    core.Handle(OpenTransferReplied{{7, serial}, {5}, {{}, {{8}}, {}, "memory", 900}}, 3);
    return effects;
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

TEST(PrefillCoreProbes, AnEngineThatHangsInItsFirstProbeNeverServes) {
  PrefillConfig config = PrefillTestConfig();
  config.engine.probe_interval_us = kSecondUs;
  config.engine.probe_block = {10};
  PrefillCore hung(config);
  auto effects = hung.Handle(Tick{}, 1);
  EXPECT_EQ(Of<RunStep>(effects).size(), 1u);
  EXPECT_TRUE(Of<CallRegister>(effects).empty());
  EXPECT_EQ(hung.NextDeadline(), 1 + kStepTimeoutUs);
  effects = hung.Handle(Tick{}, 1 + kStepTimeoutUs);
  EXPECT_EQ(Of<EngineFailed>(effects).size(), 1u);
  EXPECT_TRUE(Of<CallRegister>(effects).empty());
  PrefillCore well(config);
  const uint64_t step = Of<RunStep>(well.Handle(Tick{}, 1)).at(0).step;
  effects = well.Handle(StepDone{step, {}, {{.token = 1, .payload = "p"}}}, 2);
  EXPECT_EQ(Of<CallRegister>(effects).size(), 1u);
}

}  // namespace
}  // namespace skein::scheduler
