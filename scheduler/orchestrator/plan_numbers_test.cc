#include "scheduler/orchestrator/plan_numbers.h"

#include <gtest/gtest.h>

namespace skein::scheduler::orchestrator {
namespace {

TEST(PlanNumbers, BeginWithTheGenerationAndGrow) {
  PlanNumbers numbers(5);
  EXPECT_EQ(numbers.generation(), 5u);
  EXPECT_LT(numbers.last_epoch().value, numbers.first_epoch()) << "none was issued yet";
  const Epoch first = numbers.NextEpoch();
  EXPECT_EQ(first.value, numbers.first_epoch());
  EXPECT_EQ(GenerationOf(first.value), 5u);
  const Epoch second = numbers.NextEpoch();
  EXPECT_LT(first, second);
  EXPECT_EQ(numbers.last_epoch(), second);
}

TEST(PlanNumbers, EpochsAndSequencesAreCountedApart) {
  PlanNumbers numbers(5);
  const PlanSequence first = numbers.NextSequence();
  numbers.NextEpoch();
  const PlanSequence second = numbers.NextSequence();
  EXPECT_EQ(second.value, first.value + 1) << "an epoch takes none";
  EXPECT_EQ(numbers.last_epoch().value, numbers.first_epoch());
}

// Whatever the predecessor issued: its requests are known by it, and ordered before ours.
TEST(PlanNumbers, AllOfAHigherGenerationAreAboveAllOfALowerOne) {
  PlanNumbers numbers(5);
  Epoch epoch;
  PlanSequence sequence;
  for (int i = 0; i < 1000; ++i) {
    epoch = numbers.NextEpoch();
    sequence = numbers.NextSequence();
  }
  numbers.Begin(6);
  EXPECT_EQ(numbers.generation(), 6u);
  EXPECT_LT(epoch.value, numbers.first_epoch());
  EXPECT_LT(numbers.last_epoch().value, numbers.first_epoch());
  EXPECT_LT(epoch, numbers.NextEpoch());
  EXPECT_LT(sequence, numbers.NextSequence());
  PlanNumbers last(kGenerationMax);
  EXPECT_GT(last.NextEpoch(), numbers.last_epoch()) << "the last generation does not wrap";
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
