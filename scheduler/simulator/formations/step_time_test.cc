#include "scheduler/simulator/formations/step_time.h"

#include <limits>

#include <gtest/gtest.h>
#include "scheduler/simulator/formations/builtin_step_profiles.h"

namespace skein::scheduler {
namespace {

const StepProfile& Bf16() { return *FindStepProfile("llama3-70b-h200-bf16"); }
const StepProfile& Fp8() { return *FindStepProfile("llama3-70b-h200-fp8"); }

StepWork Prompt(int64_t tokens, int64_t history = 0) {
  StepWork work;
  work.AddPrompt(history, tokens);
  return work;
}

StepWork Decode(int64_t sequences, int64_t context) {
  StepWork work;
  for (int64_t i = 0; i < sequences; ++i) work.AddDecode(context);
  return work;
}

TEST(StepTime, BuiltInProfilesAreValidAndFoundByName) {
  ASSERT_EQ(BuiltinStepProfiles().size(), 3u);
  for (const StepProfile& profile : BuiltinStepProfiles()) {
    EXPECT_TRUE(CheckStepProfile(profile).ok()) << CheckStepProfile(profile);
    EXPECT_EQ(FindStepProfile(profile.name), &profile);
  }
  EXPECT_EQ(FindStepProfile("llama3-70b"), nullptr);
}

TEST(StepTime, PartsFollowFromTheShape) {
  // One layer of one head: weights 4 * (4 + 2 * 4 + 4) + 3 * 4 * 8 = 160, of the head 4 * 16 = 64.
  StepProfile p;
  p.shape = {.layers = 1,
             .hidden = 4,
             .heads = 1,
             .kv_heads = 1,
             .head_dim = 4,
             .intermediate = 8,
             .vocabulary = 16};
  p.peaks = {.flops_per_s = 1000,
             .attention_flops_per_s = 100,
             .hbm_bytes_per_s = 1e9,
             .link_bytes_per_s = 10,
             .usable_bytes = 1e6};
  p.fitted = {.collective_s = 0.5, .step_s = 3, .sequence_s = 0.25};
  EXPECT_EQ(p.WeightCount(), 224);
  EXPECT_EQ(p.WeightBytes(), 2 * (224 + 64));
  EXPECT_EQ(p.KvBytesPerToken(), 16);
  const StepParts one = StepTime(p, {1, 1}, Prompt(10));
  EXPECT_DOUBLE_EQ(one.products_s, 2 * (160 * 10 + 64) / 1000.0);
  EXPECT_DOUBLE_EQ(one.attention_s, 4 * 4 * 55 / 100.0);
  EXPECT_EQ(one.collectives_s, 0);
  EXPECT_DOUBLE_EQ(one.software_s, 3.25);
  // Two all-reduces of 10 rows of 4 bf16 values, of which 2 * 1 / 2 travel.
  const StepParts tp = StepTime(p, {1, 2}, Prompt(10));
  EXPECT_DOUBLE_EQ(tp.products_s, one.products_s / 2);
  EXPECT_DOUBLE_EQ(tp.attention_s, one.attention_s / 2);
  EXPECT_DOUBLE_EQ(tp.collectives_s, 2 * (0.5 + 80 / 10.0));
  // 5 rows a rank; q, k, v and the output are 16 values a row, of which half travel.
  const StepParts sp = StepTime(p, {2, 1}, Prompt(10));
  EXPECT_DOUBLE_EQ(sp.products_s, 2 * (160 * 5 + 64 * 0.5) / 1000.0);
  EXPECT_DOUBLE_EQ(sp.collectives_s, 2 * 0.5 + 80 / 10.0);
}

TEST(StepTime, SpPadsToAMultipleOfItsRanks) {
  const StepLayout sp = SpLayout(Fp8(), 8);
  EXPECT_EQ(StepTime(Fp8(), sp, Prompt(8001)).products_s,
            StepTime(Fp8(), sp, Prompt(8008)).products_s);
  EXPECT_LT(StepTime(Fp8(), sp, Prompt(8000)).products_s,
            StepTime(Fp8(), sp, Prompt(8001)).products_s);
}

TEST(StepTime, ReadsNoFewerKvOnMoreDevicesThanKvHeads) {
  const StepWork work = Decode(1, 100'000);
  const double on8 = StepTime(Fp8(), {1, 8}, work).attention_s;
  EXPECT_EQ(StepTime(Fp8(), {1, 16}, work).attention_s, on8);
  EXPECT_LT(on8, StepTime(Fp8(), {1, 4}, work).attention_s);
}

// Shift Parallelism, table 3: TP for small batches, SP for large ones; DP has no collectives.
TEST(StepTime, TpIsBestForFewTokensAndSpForMany) {
  for (const StepProfile* p : {&Bf16(), &Fp8()}) {
    const int64_t all = 8 / p->base_devices;
    const auto seconds = [&](const StepLayout& layout, const StepWork& work) {
      return StepTime(*p, layout, work).Total();
    };
    EXPECT_LT(seconds(TpLayout(*p, all), Decode(4, 2048)),
              seconds(SpLayout(*p, all), Decode(4, 2048)));
    EXPECT_GT(seconds(TpLayout(*p, all), Prompt(8192)), seconds(SpLayout(*p, all), Prompt(8192)));
    const int64_t shift = ShiftTokens(*p, all);
    EXPECT_LE(seconds(TpLayout(*p, all), Prompt(shift)), seconds(SpLayout(*p, all), Prompt(shift)));
    EXPECT_GT(seconds(TpLayout(*p, all), Prompt(shift + 1)),
              seconds(SpLayout(*p, all), Prompt(shift + 1)));
    EXPECT_GT(BindGain(*p, all), 1.05);
  }
}

// Flying Serving, table 2: 264 K, 959 K and 2.3 M tokens; 1.9 M with two instances of four devices.
TEST(StepTime, HoldsTheContextsOfTheFlyingPaper) {
  const auto devices = [](int64_t base, int64_t instances) {
    StepProfile p = Bf16();
    p.base_devices = base;
    return static_cast<double>(p.KvTokens(instances, instances));
  };
  EXPECT_NEAR(devices(2, 1), 264e3, 0.01 * 264e3);
  EXPECT_NEAR(devices(4, 1), 959e3, 0.01 * 959e3);
  EXPECT_NEAR(devices(8, 1), 2.3e6, 0.03 * 2.3e6);
  EXPECT_NEAR(devices(4, 2), 1.9e6, 0.02 * 1.9e6);
  EXPECT_EQ(devices(1, 8), 0);
}

TEST(StepTime, RefusesProfilesThatCannotBe) {
  const auto refused = [](auto change) {
    StepProfile p = Bf16();
    change(&p);
    return std::string(CheckStepProfile(p).message());
  };
  EXPECT_NE(refused([](StepProfile* p) { p->shape.layers = 0; }).find("layers"), std::string::npos);
  EXPECT_NE(refused([](StepProfile* p) {
              p->peaks.hbm_bytes_per_s = std::numeric_limits<double>::quiet_NaN();
            }).find("hbm_bytes_per_s"),
            std::string::npos);
  EXPECT_NE(refused([](StepProfile* p) { p->fitted.step_s = -1; }).find("step_s"),
            std::string::npos);
  EXPECT_NE(refused([](StepProfile* p) { p->base_devices = 1; }).find("do not fit"),
            std::string::npos);
}

}  // namespace
}  // namespace skein::scheduler
