#include "services/skeinctl/planning/prefill_shapes.h"

#include <random>

#include "gtest/gtest.h"
#include "services/codec/profile_json.h"

namespace skein::services {
namespace {

using scheduler::LatencyModel;
using scheduler::PrefillShape;
using scheduler::SpCoefficients;

constexpr PrefillShape kOne{.instances = 1}, kTwo{.instances = 2},
    kTwoInTp{.instances = 2, .tp = 2}, kFour{.instances = 4}, kFourInTp{.instances = 4, .tp = 2};

// What a shape with these coefficients takes, with some noise.
ShapeSamples Times(const PrefillShape& shape, const SpCoefficients& k, double noise = 0,
                   uint32_t seed = 1) {
  std::minstd_rand draw(seed);
  const auto sp = static_cast<int>(shape.instances);
  const LatencyModel model = *LatencyModel::Make({{sp, k}});
  ShapeSamples samples{.shape = shape, .medians = {}};
  for (int64_t tokens = 16; tokens <= 16384; tokens *= 2) {
    const double off = noise * (2 * static_cast<double>(draw() % 1001) / 1000 - 1);
    samples.medians.push_back({sp, 0, tokens, model.Seconds(sp, 0, tokens) * (1 + off)});
  }
  return samples;
}

TEST(PrefillShapes, AreThePowersOfTwoWithEachTp) {
  EXPECT_EQ(ShapesUpTo(0), std::vector<PrefillShape>{kOne});
  EXPECT_EQ(ShapesUpTo(3), (std::vector<PrefillShape>{kOne, kTwo, kTwoInTp}));
  EXPECT_EQ(ShapesUpTo(8).size(), 10u);
  EXPECT_EQ(ShapesUpTo(100), ShapesUpTo(8));
  EXPECT_EQ(NameOf(kFourInTp), "4 instances as SP 2 x TP 2");
}

TEST(PrefillShapes, AChunkTakesAsLongAsAtTheInstanceThatBeganLast) {
  const auto merged = MergeMembers({{kTwoInTp, 0, 64, 0.3},
                                    {kOne, 0, 8, 0.1},
                                    {kTwoInTp, 64, 32, 0.2},
                                    {kTwoInTp, 0, 64, 0.2},
                                    {kOne, 0, 8, 0.1},
                                    {kTwoInTp, 64, 32, 0.25}});
  ASSERT_EQ(merged.size(), 4u) << "what one instance computed stays as it is";
  EXPECT_EQ(merged[2].chunk_tokens, 64);
  EXPECT_EQ(merged[2].seconds, 0.2);
  EXPECT_EQ(merged[3].history_tokens, 64);
  EXPECT_EQ(merged[3].seconds, 0.2);
}

TEST(PrefillShapes, APieceThatWasComputedTwiceIsFoundTwice) {
  const ChunkTime told{kTwo, 0, 64, 0.1};
  EXPECT_EQ(MergeMembers({told}).size(), 1u) << "a member without tokens may tell nothing";
  EXPECT_EQ(MergeMembers({told, told}).size(), 1u);
  EXPECT_EQ(MergeMembers({told, told, told}).size(), 2u);
}

// Short prompts gain from reading fewer weights; the others lose by the bytes that TP moves.
TEST(PrefillShapes, OneFromWhichSomeLengthGainsIsKept) {
  const ShapeFits fits =
      FitShapes({Times(kOne, {0.02, 1e-4, 2e-9, 1e-9}), Times(kTwo, {0.021, 5e-5, 1e-9, 5e-10}),
                 Times(kTwoInTp, {0.012, 6e-5, 1e-9, 5e-10})});
  ASSERT_TRUE(fits.refused.ok()) << fits.refused;
  EXPECT_EQ(fits.sizes.size(), 2u);
  ASSERT_EQ(fits.tensor.size(), 1u);
  EXPECT_EQ(fits.tensor[0].ranks, 2);
  EXPECT_EQ(fits.tensor[0].tp, 2);
  EXPECT_NEAR(fits.tensor[0].coefficients.a_s, 0.012, 1e-9);
  EXPECT_NE(fits.table.find("sp 2: 11 samples, mean error 0.00%"), std::string::npos) << fits.table;
  EXPECT_NE(fits.table.find("instances 2: 11 samples, mean error 0.00%"), std::string::npos);
  EXPECT_NE(fits.table.find("2 instances as SP 1 x TP 2: faster than SP 2 at 6 of 11 points, by "),
            std::string::npos)
      << fits.table;
  const auto model = LatencyModel::Make(fits.sizes, fits.tensor);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->FastestTp(2, 0, 64), 2);
  EXPECT_EQ(model->FastestTp(2, 0, 16384), 1);
}

TEST(PrefillShapes, NoiseIsNoGain) {
  const SpCoefficients one{0.02, 1e-4, 2e-9, 1e-9}, two{0.021, 5e-5, 1e-9, 5e-10},
      slower{0.022, 5.5e-5, 1e-9, 6e-10};
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    const ShapeFits fits = FitShapes({Times(kOne, one), Times(kTwo, two, 0.01, seed),
                                      Times(kTwoInTp, slower, 0.01, seed + 1000)});
    EXPECT_TRUE(fits.tensor.empty()) << "seed " << seed << "\n" << fits.table;
  }
}

// Single lengths gain by chance, but not three neighbours.
TEST(PrefillShapes, ASingleLengthThatGainsIsNoise) {
  const SpCoefficients one{0.02, 1e-4, 2e-9, 1e-9}, two{0.021, 5e-5, 1e-9, 5e-10};
  int by_chance = 0;
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    const ShapeFits fits = FitShapes({Times(kOne, one), Times(kTwo, two, 0.015, seed),
                                      Times(kTwoInTp, two, 0.015, seed + 1000)});
    EXPECT_TRUE(fits.refused.ok()) << fits.refused;
    EXPECT_TRUE(fits.tensor.empty()) << "seed " << seed << "\n" << fits.table;
    by_chance += fits.table.find("faster than SP 2 at 0 of") == std::string::npos ? 1 : 0;
  }
  EXPECT_GT(by_chance, 0);
}

TEST(PrefillShapes, WhereFewLengthsAreMeasuredAllHaveToGain) {
  const SpCoefficients one{0.02, 1e-4, 0, 0};
  const auto kept = [&](const SpCoefficients& k) {
    ShapeSamples in_tp = Times(kTwoInTp, k);
    in_tp.medians.resize(3);
    in_tp.medians[2].chunk_tokens = 65;  // the others have no such length
    in_tp.medians[2].seconds = k.a_s + 65 * k.b_s_per_token;
    const ShapeFits fits = FitShapes({Times(kTwo, one), in_tp});
    EXPECT_TRUE(fits.refused.ok()) << fits.refused;
    EXPECT_NE(fits.table.find(" of 2 points"), std::string::npos) << fits.table;
    return fits.tensor.size() == 1;
  };
  EXPECT_TRUE(kept({0.01, 1e-4, 0, 0}));
  EXPECT_FALSE(kept({0.01, 5e-4, 0, 0})) << "it is faster with 16 tokens, and slower with 32";
}

TEST(PrefillShapes, ARefusedShapeIsLeftOutAndNamed) {
  const SpCoefficients one{0.02, 1e-4, 2e-9, 1e-9}, fast{0.002, 1e-5, 2e-10, 1e-10};
  ShapeSamples wrong = Times(kTwo, one);
  wrong.medians[5].seconds *= 10;
  const ShapeFits fits = FitShapes(
      {Times(kOne, one), wrong, Times(kTwoInTp, fast), Times(kFour, one), Times(kFourInTp, fast)});
  EXPECT_NE(fits.refused.message().find("sp 2: "), std::string::npos) << fits.refused;
  EXPECT_EQ(fits.sizes.size(), 2u);
  EXPECT_FALSE(fits.sizes.contains(2));
  ASSERT_EQ(fits.tensor.size(), 1u) << "that of two needs their size";
  EXPECT_EQ(fits.tensor[0].ranks, 4);
  wrong.shape = kTwoInTp;
  EXPECT_EQ(FitShapes({Times(kOne, one), Times(kTwo, one), wrong})
                .refused.message()
                .find("instances 2, tp 2: sp 2: "),
            0u);
}

TEST(PrefillShapes, FitSkipsTheSamplesOfTp) {
  const ShapeSamples samples{kFourInTp, {{4, 16, 512, 0.0125}}};
  const std::string text = TensorCsv({Times(kOne, {0.02, 1e-4, 2e-9, 1e-9}), samples});
  EXPECT_EQ(text, "# prefill,4,2,16,512,0.0125\n");
  const auto read = ParseSamples("sp,chunk_tokens,seconds\n1,5,0.1\n" + text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->size(), 1u);
}

}  // namespace
}  // namespace skein::services
