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
  const double sum = ExpWeights(logits, 0.0f, 1.0f, weights);
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
  ExpWeights(logits, 3.0f, 0.5f, weights);
  EXPECT_EQ(weights[0], 0.0f);
  EXPECT_NEAR(weights[1], std::exp(-4.0), 1e-7);
  EXPECT_EQ(weights[2], 1.0f);
  EXPECT_EQ(weights[3], 0.0f);
}

TEST(SoftmaxTest, LogSumExpOfALargeVocabulary) {
  const std::vector<float> logits(150'001, 7.0f);
  EXPECT_NEAR(LogSumExp(logits, 7.0f), 7.0 + std::log(150'001.0), 1e-9);
}

}  // namespace
}  // namespace skein::engine
