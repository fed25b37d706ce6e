#include "scheduler/simulator/offline/weight_fetch.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

FetchedStep Step(int64_t ranks, double layer_s) {
  return {.ranks = ranks,
          .layers = 64,
          .attention_s = 0.4 * layer_s,
          .feed_forward_s = 0.6 * layer_s,
          .outside_s = 2 * layer_s,
          .fetch_s = 1};
}

TEST(WeightFetch, OneRankReadsNothing) {
  const FetchedStep step = Step(1, 0.25);
  EXPECT_DOUBLE_EQ(FetchedStepSeconds(step), step.FullSeconds());
}

TEST(WeightFetch, IsNeverFasterThanComputingOrReading) {
  for (const int64_t ranks : {2, 3, 4, 8}) {
    for (const double layer_s : {0.05, 0.3, 0.9, 1.0, 1.7, 4.0}) {
      for (const bool peak_shifting : {false, true}) {
        FetchedStep step = Step(ranks, layer_s);
        step.peak_shifting = peak_shifting;
        const double seconds = FetchedStepSeconds(step);
        EXPECT_GE(seconds, step.FullSeconds()) << ranks << " " << layer_s;
        // The layers of the others, by all readers of all links.
        const double owned = 64.0 / static_cast<double>(ranks);
        EXPECT_GE(seconds * 1.02, 64 - owned) << ranks << " " << layer_s;
      }
    }
  }
}

TEST(WeightFetch, IsHiddenBehindLongLayers) {
  for (const int64_t ranks : {2, 4, 8}) {
    const FetchedStep step = Step(ranks, 3);
    EXPECT_NEAR(FetchedStepSeconds(step) / step.FullSeconds(), 1, 0.02) << ranks;
  }
}

TEST(WeightFetch, OneSlotOfTwoRanksByHand) {
  // The read of every second layer takes 1 and holds the only slot until its product ends, 0.15
  // later. Nothing else is as long: 32 x (1 + 0.15).
  EXPECT_NEAR(FetchedStepSeconds(Step(2, 0.25)), 32 * 1.15, 0.01 * 32);
}

TEST(WeightFetch, PeakShiftingKeepsReadersOfOneOwnerApart) {
  FetchedStep shifted = Step(8, 0.25);
  shifted.slots = 14;
  FetchedStep in_order = shifted;
  in_order.peak_shifting = false;
  EXPECT_NEAR(FetchedStepSeconds(shifted), 56, 1);  // each link is busy with one reader
  EXPECT_GT(FetchedStepSeconds(in_order), 3 * FetchedStepSeconds(shifted));
}

TEST(WeightFetch, LayersThatAreNoWholeNumberOfCycles) {
  FetchedStep step = Step(4, 0.5);
  step.layers = 30;
  EXPECT_GE(FetchedStepSeconds(step), step.FullSeconds());
  step.layers = 2;  // fewer than ranks
  EXPECT_GE(FetchedStepSeconds(step), step.FullSeconds());
}

}  // namespace
}  // namespace skein::scheduler
