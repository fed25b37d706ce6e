#include "engine/sampling/softmax.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

TEST(SoftmaxTest, WeightsAreAccurate) {
  std::vector<float> logits;
  for (float x = -90.0f; x <= 0.0f; x += 0.0137f) logits.push_back(x);
  logits.push_back(0.0f);
  std::vector<float> weights(logits.size());
  std::vector<double> sums(Stretches(logits.size()));
  const double sum = WeighLogits(logits, {}, sums, weights);
  double expected_sum = 0.0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double expected = logits[i] < -87.0f ? 0.0 : std::exp(double{logits[i]});
    EXPECT_NEAR(weights[i], expected, expected * 1e-6) << logits[i];
    expected_sum += expected;
  }
  EXPECT_EQ(weights.back(), 1.0f);
  EXPECT_NEAR(sum, expected_sum, expected_sum * 1e-6);
}

TEST(SoftmaxTest, TemperatureAndMasks) {
  const std::vector<float> logits = {-std::numeric_limits<float>::infinity(), 1.0f, 3.0f, -1e30f};
  std::vector<float> weights(4);
  double sum = 0.0;
  WeighLogits(logits, {3.0f, 0.5f}, {&sum, 1}, weights);
  EXPECT_EQ(weights[0], 0.0f);
  EXPECT_NEAR(weights[1], std::exp(-4.0), 1e-7);
  EXPECT_EQ(weights[2], 1.0f);
  EXPECT_EQ(weights[3], 0.0f);
  EXPECT_EQ(sum, 1.0 + weights[1]);
  EXPECT_EQ(WeighLogits(logits, {3.0f, 0.5f, 0.1f}, {&sum, 1}, weights), 1.0);
  EXPECT_EQ(weights[1], 0.0f);
}

TEST(SoftmaxTest, LogSumExpOfALargeVocabulary) {
  for (const size_t size : {1, 4095, 4096, 4097, 150'001}) {
    const std::vector<float> logits(size, 7.0f);
    EXPECT_NEAR(LogSumExp(logits, 7.0f), 7.0 + std::log(static_cast<double>(size)), 1e-9);
  }
}

TEST(SoftmaxTest, AStretchIsWeighedAloneAsAmongOthers) {
  std::vector<float> logits;
  for (int i = 0; i < 1000; ++i) logits.push_back(static_cast<float>(-0.01 * (i * 37 % 1000)));
  std::vector<double> sums(Stretches(logits.size()));
  const double total = WeighLogits(logits, {.temperature = 0.7f}, sums);
  double in_order = 0.0;
  for (size_t s = 0; s < sums.size(); ++s) {
    double alone = 0.0;
    WeighLogits(StretchOf(logits, s), {.temperature = 0.7f}, {&alone, 1});
    EXPECT_EQ(alone, sums[s]) << s;
    in_order += alone;
  }
  EXPECT_EQ(total, in_order);
}

TEST(SoftmaxTest, ScanOfStretches) {
  std::vector<float> logits(600, -1.0f);
  logits[300] = logits[299] = logits[599] = 2.0f;
  std::vector<float> maxima(3);
  const LogitScan scan = ScanLogits(logits, maxima);
  EXPECT_TRUE(scan.usable);
  EXPECT_EQ(scan.max, 2.0f);
  EXPECT_EQ(maxima, (std::vector<float>{-1.0f, 2.0f, 2.0f}));
  EXPECT_EQ(FirstIndexOf(logits, maxima, scan.max), 299);
  const std::vector<float> masked(600, -std::numeric_limits<float>::infinity());
  EXPECT_FALSE(ScanLogits(masked, maxima).usable);
}

}  // namespace
}  // namespace skein::engine
