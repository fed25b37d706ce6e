#include "scheduler/simulator/offline/decode_iteration.h"

#include <string>

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

OfflineProfile Profile(const char* model, const char* device, int64_t tp) {
  return MakeOfflineProfile(*FindOfflineModel(model), *FindOfflineDevice(device), 0.9, tp);
}
SharedSteps Llama(const char* device, int64_t ranks) {
  return SharedSteps(Profile("llama-3.1-70b", device, 2), {.ranks = ranks});
}
std::vector<StepWork> Everywhere(int64_t ranks, const StepWork& work) {
  return std::vector<StepWork>(static_cast<size_t>(ranks), work);
}

TEST(DecodeIteration, TheSplitAddsUpToTheStepsTime) {
  const OfflineProfile profile = Profile("qwen3-32b", "h20", 1);
  const StepWork work = DecodeWork(33, 700);
  const double step_s = StepTime(profile.step, TpLayout(profile.step, 1), work).Total();
  EXPECT_NEAR(SplitOf(profile, work).Total(), step_s, 1e-12);
}

TEST(DecodeIteration, TimesGrowWithTheBatch) {
  for (const char* device : {"h20", "h200", "b200"}) {
    SharedSteps steps = Llama(device, 2);
    double full_s = 0, was_s = 0, cas_s = 0;
    for (int64_t batch = 1; batch <= 512; batch *= 2) {
      const StepWork work = DecodeWork(batch, 1024);
      EXPECT_GT(steps.FullSeconds(work), full_s);
      EXPECT_GE(steps.WasSeconds(work), was_s * 0.98);  // its grid is of 2 %
      EXPECT_GT(steps.CasSeconds(Everywhere(2, work)), cas_s);
      EXPECT_GE(steps.WasSeconds(work), steps.FullSeconds(work));
      EXPECT_GT(steps.CasSeconds(Everywhere(2, work)), steps.FullSeconds(work));
      full_s = steps.FullSeconds(work);
      was_s = steps.WasSeconds(work);
      cas_s = steps.CasSeconds(Everywhere(2, work));
    }
  }
}

TEST(DecodeIteration, OneRankIsFullWeights) {
  SharedSteps steps = Llama("h200", 1);
  const StepWork work = DecodeWork(17, 2048);
  EXPECT_DOUBLE_EQ(steps.WasSeconds(work), steps.FullSeconds(work));
  EXPECT_DOUBLE_EQ(steps.CasSeconds({work}), steps.FullSeconds(work));
  EXPECT_DOUBLE_EQ(steps.GatheredSeconds(work), steps.FullSeconds(work));
  EXPECT_EQ(steps.Threshold(2048), 1);
}

TEST(DecodeIteration, TheThresholdIsWhereWasStopsBeingSlower) {
  SharedSteps steps = Llama("h20", 4);
  const int64_t threshold = steps.Threshold(1024);
  ASSERT_GT(threshold, 1);
  const auto is_slower = [&](int64_t batch) {
    const StepWork work = DecodeWork(batch, 1024);
    return steps.WasSeconds(work) > steps.CasSeconds(Everywhere(4, work));
  };
  EXPECT_TRUE(is_slower(threshold - 1));
  EXPECT_FALSE(is_slower(threshold));
}

TEST(DecodeIteration, RanksWithoutWorkCostNothingInCas) {
  const SharedSteps steps = Llama("h20", 8);
  const StepWork work = DecodeWork(4, 1024);
  std::vector<StepWork> one = Everywhere(8, {});
  one[3] = work;
  EXPECT_LT(steps.CasSeconds(one), steps.CasSeconds(Everywhere(8, work)));
  EXPECT_LT(steps.CasSeconds(one), steps.CasSeconds(one, SharedSteps::Cas::kFused));
}

// SiDP's figures by its prose; H20, Llama-3.1-70B, TP 2.
TEST(DecodeIteration, PrefetchOverlapsAsInFigure9) {
  const OfflineProfile h20 = Profile("llama-3.1-70b", "h20", 2);
  const SharedSteps steps(h20, {.ranks = 2});
  // The paper's time counts both directions of the link, and all layers.
  const double fetch_s = steps.LayerFetchSeconds() * 80 / 2;
  const auto over = [&](int64_t batch) {
    return steps.FullSeconds(DecodeWork(batch, 1024)) / fetch_s;
  };
  EXPECT_LT(over(64), 1);
  EXPECT_GT(over(128), 1);
  EXPECT_NEAR(over(256), 3, 0.3);
  EXPECT_NEAR(over(512), 5, 0.6);
}

TEST(DecodeIteration, ModesCrossAsInFigure11) {
  SharedSteps steps = Llama("h20", 2);
  for (const int64_t batch : {1, 8, 32}) {
    const StepWork work = DecodeWork(batch, 1024);
    EXPECT_LT(steps.CasSeconds(Everywhere(2, work)), 0.8 * steps.WasSeconds(work)) << batch;
  }
  const StepWork large = DecodeWork(128, 1024);
  EXPECT_LT(steps.WasSeconds(large), 1.1 * steps.FullSeconds(large));
  EXPECT_GT(steps.CasSeconds(Everywhere(2, large)), 1.3 * steps.WasSeconds(large));
  const StepWork single = DecodeWork(1, 1024);
  EXPECT_NEAR(steps.CasSeconds({single, {}}) / steps.FullSeconds(single), 1.12, 0.01);
}

TEST(DecodeIteration, OptimizationsOfCasAsInFigure14) {
  const SharedSteps steps = Llama("h20", 2);
  const StepWork single = DecodeWork(1, 1024);
  const double v3_s = steps.CasSeconds({single, {}});
  const auto over_v3 = [&](double seconds) { return seconds / v3_s * 12; };
  EXPECT_NEAR(over_v3(steps.GatheredSeconds(single)), 33, 3.5);
  EXPECT_NEAR(over_v3(steps.CasSeconds({single, {}}, SharedSteps::Cas::kUnfused)), 25, 1);
  EXPECT_NEAR(over_v3(steps.CasSeconds({single, {}}, SharedSteps::Cas::kFused)), 19, 0.3);
}

TEST(OfflineProfile, BuiltinsAreValidAndErrorsNameTheField) {
  for (const OfflineModel& model : OfflineModels()) {
    for (const OfflineDevice& device : OfflineDevices()) {
      EXPECT_TRUE(CheckOfflineProfile(MakeOfflineProfile(model, device, 0.9, 1)).ok());
    }
  }
  OfflineProfile profile = Profile("qwen3-32b", "h20", 1);
  profile.peers.hop_s = -1;
  EXPECT_EQ(CheckOfflineProfile(profile).message(), "hop_s: -1 is below 0");
  profile = Profile("qwen3-32b", "h20", 1);
  profile.step.shape.layers = 0;
  EXPECT_EQ(CheckOfflineProfile(profile).message(), "layers: 0 is not in 1 to 2^24");
  EXPECT_EQ(FindOfflineModel("gpt"), nullptr);
  EXPECT_EQ(FindOfflineDevice("a100"), nullptr);
  EXPECT_EQ(FindOfflineLink("rope"), nullptr);
}

}  // namespace
}  // namespace skein::scheduler
