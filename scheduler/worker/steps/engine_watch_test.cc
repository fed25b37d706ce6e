#include "scheduler/worker/steps/engine_watch.h"

#include <gtest/gtest.h>

#include <memory>

namespace skein::scheduler {
namespace {

RunStep StepOf(int64_t tokens) {
  RunStep step;
  step.sequences.push_back({.id = {7, 1}, .count = tokens});
  return step;
}

RunStep JointStep(TimeUs deadline_us, TimeUs estimated_us = 0) {
  RunStep step = StepOf(8);
  auto part = std::make_shared<RingPart>();
  part->deadline_us = deadline_us;
  part->estimated_us = estimated_us;
  step.sequences.front().ring = std::move(part);
  return step;
}

TEST(EngineWatch, AStepIsOverdueAtItsTimeout) {
  EngineWatch watch({.step_timeout_us = 1000});
  EXPECT_FALSE(watch.Overdue(5000));
  watch.Begin(StepOf(3), 5000);
  EXPECT_EQ(watch.StepAgeUs(5400), 400);
  EXPECT_EQ(watch.NextDeadline(true), 6000);
  EXPECT_FALSE(watch.Overdue(5999));
  EXPECT_TRUE(watch.Overdue(6000));
  watch.End(6001);
  EXPECT_FALSE(watch.Overdue(9000));
  EXPECT_EQ(watch.StepAgeUs(9000), 0);
  EXPECT_EQ(watch.NextDeadline(true), kNever);
}

TEST(EngineWatch, AStepOfSeveralInstancesAgesFromItsOwnDeadline) {
  EngineWatch watch({.step_timeout_us = 1000});
  watch.Begin(JointStep(8000), 5000);
  EXPECT_EQ(watch.StepAgeUs(7999), 0) << "it may wait for the others";
  EXPECT_FALSE(watch.Overdue(8999));
  EXPECT_TRUE(watch.Overdue(9000));
  EXPECT_TRUE(watch.CheckInvariants().ok()) << watch.CheckInvariants();
  watch.End(9000);
  watch.Begin(StepOf(1), 9000);
  EXPECT_EQ(watch.StepEstimateUs(), 0) << "how long the others took is no measure";
}

// One that does not return then is suspect (placement/step_age.h), whatever it ran before.
TEST(EngineWatch, AStepOfSeveralInstancesReturnsSoonAfterItsDeadline) {
  EngineWatch watch({.step_timeout_us = 600 * kSecondUs});
  watch.Begin(JointStep(8000), 5000);
  EXPECT_EQ(watch.StepEstimateUs(), 100 * kMillisecondUs);
  watch.End(9000);
  watch.Begin(JointStep(8000, /*estimated_us=*/40 * kSecondUs), 5000);
  EXPECT_EQ(watch.StepEstimateUs(), 2 * kSecondUs) << "a layer of a long chunk";
}

TEST(EngineWatch, TheEstimateIsTheLongestOfRecentStepsScaledUpToItsTokens) {
  EngineWatch watch({});
  const auto run = [&watch](int64_t tokens, TimeUs took_us) {
    watch.Begin(StepOf(tokens), 0);
    watch.End(took_us);
  };
  run(1, 10);
  watch.Begin(StepOf(512), 0);
  EXPECT_EQ(watch.StepEstimateUs(), 5120);
  watch.End(600);
  watch.Begin(StepOf(1), 0);
  EXPECT_EQ(watch.StepEstimateUs(), 600) << "a smaller step is not expected to be faster";
  watch.End(10);
  for (int i = 0; i < 16; ++i) run(1, 20);
  watch.Begin(StepOf(1), 0);
  EXPECT_EQ(watch.StepEstimateUs(), 20) << "old steps are forgotten";
}

TEST(EngineWatch, AnIdleEngineIsProbedAtOnceAndThenByTheInterval) {
  EngineWatch watch({.probe_interval_us = 100, .probe_block = {9}});
  ASSERT_TRUE(watch.ProbeDue(1));
  const RunStep probe = watch.Probe(4);
  EXPECT_TRUE(probe.probe);
  EXPECT_EQ(probe.step, 4u);
  ASSERT_EQ(probe.sequences.size(), 1u);
  EXPECT_EQ(probe.sequences[0].TokenAt(0), 0);
  EXPECT_EQ(probe.sequences[0].count, 1);
  EXPECT_EQ(*probe.sequences[0].blocks, std::vector<BlockId>{{9}});
  watch.Begin(probe, 1);
  EXPECT_TRUE(watch.probing());
  EXPECT_FALSE(watch.ProbeDue(1000));
  watch.End(11);
  EXPECT_EQ(watch.NextDeadline(/*may_probe=*/true), 111);
  EXPECT_EQ(watch.NextDeadline(/*may_probe=*/false), kNever);
  watch.Begin(StepOf(1), 50);
  EXPECT_FALSE(watch.probing());
  watch.End(60);
  EXPECT_FALSE(watch.ProbeDue(159)) << "a step of requests shows as much";
  EXPECT_TRUE(watch.ProbeDue(160));
  EXPECT_EQ(watch.probes(), 1u);
}

TEST(EngineWatch, WithoutAnIntervalThereAreNoProbes) {
  EngineWatch watch({});
  EXPECT_FALSE(watch.ProbeDue(1'000'000'000));
  EXPECT_EQ(watch.NextDeadline(true), kNever);
}

TEST(EngineWatch, AFailureNamesTheRequestsOfItsStep) {
  EngineWatch watch({.probe_interval_us = 100});
  const RunStep step = StepOf(1);
  watch.Begin(step, 0);
  watch.Fail(absl::InternalError("bus error"), step.sequences);
  EXPECT_TRUE(watch.CheckInvariants().ok()) << watch.CheckInvariants();
  EXPECT_FALSE(watch.ok());
  EXPECT_TRUE(watch.FailedUnder({7, 1}));
  EXPECT_FALSE(watch.FailedUnder({7, 2}));
  EXPECT_EQ(watch.EndOfRequests(), absl::UnavailableError("the engine failed: bus error"));
  EXPECT_FALSE(watch.ProbeDue(1'000'000));
  EXPECT_EQ(watch.NextDeadline(true), kNever);
}

}  // namespace
}  // namespace skein::scheduler
