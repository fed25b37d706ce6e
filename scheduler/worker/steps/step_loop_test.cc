#include "scheduler/worker/steps/step_loop.h"

#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

const StepResult kToken{.token = 7, .payload = "p"};
const StepResult kNan{.status = absl::InternalError("NaN")};

StepSequence Sequence(uint64_t serial, bool joint = false) {
  StepSequence sequence{.id = {7, serial}, .count = 1};
  if (joint) sequence.ring = std::make_shared<RingPart>();
  return sequence;
}

TEST(StepLoop, OneStepAtATimeByNumber) {
  StepLoop steps({});
  const RunStep first = steps.Launch({Sequence(1), Sequence(2)}, 100);
  EXPECT_EQ(first.step, 1u);
  EXPECT_FALSE(steps.MayLaunch());
  EXPECT_FALSE(steps.End({.step = 2, .results = {kToken, kToken}}, 150).has_value());
  const auto ended = steps.End({.step = 1, .results = {kToken, kToken}}, 160);
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(ended->status.ok());
  EXPECT_EQ(ended->took_us, 60);
  ASSERT_EQ(ended->ran.size(), 2u);
  EXPECT_EQ(ended->ran[1].id.serial, 2u);
  EXPECT_FALSE(steps.End({.step = 1, .results = {kToken, kToken}}, 170).has_value())
      << "a duplicate";
  EXPECT_EQ(steps.Launch({Sequence(1)}, 200).step, 2u);
}

// Nothing says which of its sequences is at fault, if any.
TEST(StepLoop, AStepThatIsRefusedWholeBlamesNoRequest) {
  StepLoop steps({});
  steps.Launch({Sequence(1)}, 0);
  const auto ended = steps.End({.step = 1, .status = absl::InvalidArgumentError("shape")}, 1);
  EXPECT_EQ(ended->status, absl::UnavailableError("the engine refused the step: shape"));
  EXPECT_TRUE(steps.MayLaunch());
}

TEST(StepLoop, AnErrorOfAWholeStepFailsTheEngine) {
  const StepDone errors[] = {{.step = 1, .status = absl::InternalError("bus error")},
                             {.step = 1, .status = absl::UnavailableError("gone")},
                             {.step = 1, .results = {kToken}}};  // of two sequences
  for (const StepDone& error : errors) {
    StepLoop steps({});
    steps.Launch({Sequence(1), Sequence(2)}, 0);
    const auto ended = steps.End(error, 1);
    EXPECT_TRUE(absl::IsUnavailable(ended->status)) << "another engine may run them";
    EXPECT_FALSE(steps.engine().ok());
    EXPECT_TRUE(steps.engine().FailedUnder({7, 2}));
    EXPECT_FALSE(steps.MayLaunch());
  }
}

TEST(StepLoop, AJointStepThatBrokeForOthersIsNoFailureOfThisEngine) {
  for (const absl::Status& broke : {absl::UnavailableError("peer"), absl::CancelledError("word"),
                                    absl::DeadlineExceededError("late")}) {
    StepLoop steps({});
    steps.Launch({Sequence(1, /*joint=*/true)}, 0);
    EXPECT_TRUE(absl::IsUnavailable(steps.End({.step = 1, .status = broke}, 1)->status));
    EXPECT_TRUE(steps.MayLaunch());
  }
  StepLoop steps({});
  steps.Launch({Sequence(1, /*joint=*/true)}, 0);
  steps.End({.step = 1, .status = absl::InternalError("bus error")}, 1);
  EXPECT_FALSE(steps.engine().ok());
}

TEST(StepLoop, AProbeIsNoStepOfRequestsAndFailsTheEngineWithAnyError) {
  StepLoop steps({.probe_interval_us = 100});
  ASSERT_TRUE(steps.Probe(0).has_value());
  EXPECT_FALSE(steps.MayLaunch());
  const auto ended = steps.End({.step = 1, .results = {StepResult{}}}, 10);
  EXPECT_TRUE(ended->ran.empty());
  EXPECT_TRUE(steps.MayLaunch());
  EXPECT_EQ(steps.steps(), 0u);
  EXPECT_FALSE(steps.Probe(20).has_value()) << "not due";
  ASSERT_TRUE(steps.Probe(110).has_value());
  steps.End({.step = 2, .results = {{.status = absl::InvalidArgumentError("refused")}}}, 120);
  EXPECT_FALSE(steps.engine().ok());
  EXPECT_FALSE(steps.engine().FailedUnder({7, 1}));
}

// Three requests in a row may be at fault; a probe is not.
TEST(StepLoop, StepsOfNothingButNanAreFollowedByAProbeThatDecides) {
  for (const bool engine_is_at_fault : {false, true}) {
    StepLoop steps({.probe_interval_us = 1'000'000});
    steps.Launch({Sequence(1)}, 0);
    steps.End({.step = 1, .results = {kToken}}, 0);
    uint64_t step = 1;
    for (int i = 0; i < NanSteps::kLimit; ++i) {
      EXPECT_FALSE(steps.doubtful());
      steps.Launch({Sequence(++step)}, 1);
      steps.End({.step = step, .results = {kNan}}, 1);
      EXPECT_TRUE(steps.engine().ok());
    }
    EXPECT_TRUE(steps.doubtful());
    const std::optional<RunStep> probe = steps.Probe(2);
    ASSERT_TRUE(probe.has_value()) << "due at once";
    EXPECT_TRUE(probe->sequences.at(0).sample) << "else it would show no logits";
    EXPECT_FALSE(steps.doubtful());
    steps.End({.step = probe->step, .results = {engine_is_at_fault ? kNan : kToken}}, 3);
    EXPECT_EQ(steps.engine().ok(), !engine_is_at_fault);
  }
}

TEST(StepLoop, StepsOfNothingButNanFailAnEngineThatIsNotProbed) {
  StepLoop steps({});
  for (uint64_t step = 1; step <= NanSteps::kLimit; ++step) {
    EXPECT_TRUE(steps.MayLaunch());
    steps.Launch({Sequence(step)}, 0);
    const auto ended = steps.End({.step = step, .results = {kNan}}, 1);
    EXPECT_TRUE(ended->status.ok()) << "each sequence has its own status";
  }
  EXPECT_FALSE(steps.engine().ok());
}

TEST(StepLoop, AnOverdueStepFailsTheEngineUnderItsRequests) {
  StepLoop steps({.step_timeout_us = 1000});
  steps.Launch({Sequence(1)}, 0);
  ASSERT_TRUE(steps.engine().Overdue(1000));
  EXPECT_EQ(steps.FailOverdue().size(), 1u);
  EXPECT_TRUE(steps.engine().FailedUnder({7, 1}));
  EXPECT_FALSE(steps.End({.step = 1, .results = {kToken}}, 1001).has_value()) << "too late";
}

TEST(StepLoop, OneStepIsLaunchedBehindTheOneThatRunsAndCountsFromItsEnd) {
  StepLoop steps({.step_timeout_us = 1000});
  EXPECT_FALSE(steps.MayLaunchAhead()) << "nothing runs";
  steps.Launch({Sequence(1)}, 100);
  ASSERT_TRUE(steps.MayLaunchAhead());
  EXPECT_EQ(steps.Launch({Sequence(1), Sequence(2)}, 110).step, 2u);
  EXPECT_FALSE(steps.MayLaunchAhead());
  EXPECT_FALSE(steps.End({.step = 2, .results = {kToken, kToken}}, 120).has_value())
      << "it does not run yet";
  EXPECT_EQ(steps.End({.step = 1, .results = {kToken}}, 600)->took_us, 500);
  EXPECT_FALSE(steps.MayLaunch());
  EXPECT_TRUE(steps.MayLaunchAhead());
  EXPECT_FALSE(steps.engine().Overdue(1599));
  EXPECT_TRUE(steps.engine().Overdue(1600));
  const auto ended = steps.End({.step = 2, .results = {kToken, kToken}}, 700);
  EXPECT_EQ(ended->took_us, 100);
  EXPECT_EQ(ended->ran.size(), 2u);
  EXPECT_TRUE(steps.MayLaunch());
  EXPECT_TRUE(steps.CheckInvariants().ok());
}

TEST(StepLoop, NothingIsLaunchedBehindAProbeOrAStepOfSeveralInstances) {
  StepLoop steps({.probe_interval_us = 100});
  steps.Probe(0);
  EXPECT_FALSE(steps.MayLaunchAhead());
  steps.End({.step = 1, .results = {StepResult{}}}, 10);
  steps.Launch({Sequence(1, /*joint=*/true)}, 20);
  EXPECT_FALSE(steps.MayLaunchAhead());
}

TEST(StepLoop, AFailureEndsTheStepBehindIt) {
  StepLoop steps({.step_timeout_us = 1000});
  steps.Launch({Sequence(1)}, 0);
  steps.Launch({Sequence(1), Sequence(2)}, 0);
  const auto ended = steps.End({.step = 1, .status = absl::InternalError("bus error")}, 1);
  EXPECT_EQ(ended->ran.size(), 1u);
  EXPECT_EQ(ended->ahead.size(), 2u);
  EXPECT_FALSE(steps.engine().FailedUnder({7, 2})) << "it did not run in that step";
  EXPECT_FALSE(steps.End({.step = 2, .status = absl::InternalError("bus error")}, 2).has_value());
  StepLoop hung({.step_timeout_us = 1000});
  hung.Launch({Sequence(1)}, 0);
  hung.Launch({Sequence(2)}, 0);
  EXPECT_EQ(hung.FailOverdue().size(), 2u);
  EXPECT_TRUE(hung.engine().FailedUnder({7, 1}));
  EXPECT_FALSE(hung.engine().FailedUnder({7, 2}));
}

TEST(StepLoopRate, IsAMeanOverRecentSteps) {
  StepLoop loop{EngineWatchConfig()};
  EXPECT_EQ(loop.TokensPerSecond(), 0);
  loop.AddTokens(0, kSecondUs);
  loop.AddTokens(10, 0);
  EXPECT_EQ(loop.TokensPerSecond(), 0) << "nothing was measured";
  loop.AddTokens(800, kSecondUs);
  EXPECT_EQ(loop.TokensPerSecond(), 800);
  EXPECT_EQ(loop.MeanStepUs(), kSecondUs);
  loop.AddTokens(400, kSecondUs);
  EXPECT_EQ(loop.TokensPerSecond(), 800 - 400 / 8);
  EXPECT_EQ(loop.measured(), 3) << "a step without tokens is none of a request";
  loop.AddTokens(400, 2 * kSecondUs);
  EXPECT_EQ(loop.MeanStepUs(), kSecondUs + kSecondUs / 8);
}

TEST(StepLoopRate, TwoStepsWhoseEndsAreHandledTogetherCountAsTwo) {
  StepLoop loop{EngineWatchConfig()};
  for (int i = 0; i < 20; ++i) {
    loop.AddTokens(800, 2 * kSecondUs - 1);
    loop.AddTokens(800, 1);
  }
  EXPECT_NEAR(loop.TokensPerSecond(), 800, 80);
}

}  // namespace
}  // namespace skein::scheduler
