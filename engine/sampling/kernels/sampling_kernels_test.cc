#include "engine/sampling/kernels/sampling_kernels.h"

#include <bit>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "engine/sampling/philox.h"
#include "engine/sampling/softmax.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Around the ends of registers of every width, of blocks and of stretches.
std::vector<size_t> Sizes() {
  std::vector<size_t> sizes;
  for (size_t n = 1; n <= 70; ++n) sizes.push_back(n);
  for (const size_t stretches : {1, 2, 5}) {
    for (size_t n = stretches * 256 - 17; n <= stretches * 256 + 17; ++n) sizes.push_back(n);
  }
  return sizes;
}

// From far below the smallest weight up to 3; some masked, some equal.
std::vector<float> Logits(size_t n, uint64_t seed) {
  std::vector<float> logits(n);
  for (size_t i = 0; i < n; ++i) {
    const double u = UniformSample(seed, i);
    logits[i] = static_cast<float>(i % 3 == 0 ? 3.0 - 12.0 * u : 3.0 - 120.0 * u);
    if (i % 7 == 3) logits[i] = -kInfinity;
    if (i % 11 == 5) logits[i] = -1e30f;
    if (i % 5 == 4) logits[i] = 1.25f;
  }
  logits[n / 2] = 3.0f;
  return logits;
}

uint64_t Bits(double x) { return std::bit_cast<uint64_t>(x); }
uint32_t Bits(float x) { return std::bit_cast<uint32_t>(x); }

class SamplingKernelsTest : public testing::TestWithParam<CpuIsa> {
 protected:
  void SetUp() override {
    if (!IsSupported(GetParam())) GTEST_SKIP() << "not on this CPU";
    kernels_ = SamplingKernelsFor(GetParam());
  }
  SamplingKernels kernels_;
};

// The sum of a stretch as sampling_kernels.h defines it.
double SumOfStretch(std::span<const float> weights) {
  double lanes[16] = {};
  for (size_t i = 0; i < weights.size(); ++i) lanes[i % 16] += weights[i];
  for (size_t half = 8; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

TEST_P(SamplingKernelsTest, WeightsAndSumsHaveTheBitsOfTheDefinition) {
  constexpr float kUnset = -7.0f;
  for (const size_t n : Sizes()) {
    const std::vector<float> logits = Logits(n, n);
    for (const WeightScale& scale : {WeightScale{3.0f, 1.0f, 0.0f}, WeightScale{3.0f, 0.83f, 0.0f},
                                     WeightScale{3.0f, 1.9f, 0.02f}, WeightScale{3.0f, 1e30f}}) {
      std::vector<float> weights(n + 1, kUnset);
      std::vector<double> sums(Stretches(n) + 1, kUnset), sums_alone(Stretches(n) + 1, kUnset);
      kernels_.weigh(logits.data(), n, scale, weights.data(), sums.data());
      kernels_.weigh(logits.data(), n, scale, nullptr, sums_alone.data());
      for (size_t i = 0; i < n; ++i) {
        float expected = ExpWeight(logits[i], scale.max, scale.temperature);
        if (expected < scale.weight_min) expected = 0.0f;
        ASSERT_EQ(Bits(weights[i]), Bits(expected)) << "logit " << i << " of " << n;
      }
      for (size_t s = 0; s < Stretches(n); ++s) {
        const double expected = SumOfStretch(StretchOf(std::span(weights).first(n), s));
        ASSERT_EQ(Bits(sums[s]), Bits(expected)) << "stretch " << s << " of " << n;
        ASSERT_EQ(Bits(sums_alone[s]), Bits(expected)) << "stretch " << s << " of " << n;
      }
      ASSERT_EQ(weights.back(), kUnset) << n;
      ASSERT_EQ(sums.back(), kUnset) << n;
      ASSERT_EQ(sums_alone.back(), kUnset) << n;
    }
  }
}

// From 0 to beyond the last weight above 0.
TEST_P(SamplingKernelsTest, WeightsOfTheWholeRange) {
  std::vector<float> logits;
  for (float x = 0.0f; x > -88.0f; x -= 0.00713f) logits.push_back(x);
  for (float x = -87.0f; x > -87.001f; x = std::nextafter(x, -88.0f)) logits.push_back(x);
  for (const float x : {-1e-30f, -1e-40f, -0.0f, -1e38f, -kInfinity}) logits.push_back(x);
  std::vector<float> weights(logits.size());
  std::vector<double> sums(Stretches(logits.size()));
  kernels_.weigh(logits.data(), logits.size(), {}, weights.data(), sums.data());
  for (size_t i = 0; i < logits.size(); ++i) {
    ASSERT_EQ(Bits(weights[i]), Bits(ExpWeight(logits[i], 0.0f, 1.0f))) << logits[i];
    const double expected = logits[i] < -87.0f ? 0.0 : std::exp(double{logits[i]});
    ASSERT_NEAR(weights[i], expected, expected * 1e-6) << logits[i];
  }
}

TEST_P(SamplingKernelsTest, MaximaOfStretches) {
  for (const size_t n : Sizes()) {
    for (size_t peak = 0; peak < n; peak += 1 + n / 13) {
      std::vector<float> logits = Logits(n, n + 1);
      logits[peak] = 3.5f;
      std::vector<float> maxima(Stretches(n) + 1, -7.0f);
      ASSERT_TRUE(kernels_.scan(logits.data(), n, maxima.data())) << n;
      for (size_t s = 0; s < Stretches(n); ++s) {
        float most = -kInfinity;
        for (const float logit : StretchOf(logits, s)) most = most < logit ? logit : most;
        ASSERT_EQ(maxima[s], most) << "stretch " << s << " of " << n;
      }
      ASSERT_EQ(maxima.back(), -7.0f) << n;
    }
  }
}

TEST_P(SamplingKernelsTest, NaNAndInfinityAreSeenAnywhere) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const size_t n : {1, 5, 16, 17, 255, 256, 300}) {
    for (size_t place = 0; place < n; ++place) {
      for (const float bad : {nan, -nan, kInfinity}) {
        std::vector<float> logits = Logits(n, n);
        logits[place] = bad;
        std::vector<float> maxima(Stretches(n));
        ASSERT_FALSE(kernels_.scan(logits.data(), n, maxima.data())) << place << " of " << n;
      }
    }
    const std::vector<float> masked(n, -kInfinity);
    std::vector<float> maxima(Stretches(n));
    ASSERT_TRUE(kernels_.scan(masked.data(), n, maxima.data())) << n;
    for (const float most : maxima) ASSERT_EQ(most, -kInfinity);
  }
}

// The largest and the smallest finite logits are neither NaN nor infinite.
TEST_P(SamplingKernelsTest, TheLargestFiniteLogitsAreUsable) {
  const float most = std::numeric_limits<float>::max();
  const std::vector<float> logits = {most, -most, -kInfinity, 0.0f, most};
  float maximum = 0.0f;
  EXPECT_TRUE(kernels_.scan(logits.data(), logits.size(), &maximum));
  EXPECT_EQ(maximum, most);
}

INSTANTIATE_TEST_SUITE_P(Isa, SamplingKernelsTest,
                         testing::Values(CpuIsa::kAvx512, CpuIsa::kAvx2, CpuIsa::kPortable),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

}  // namespace
}  // namespace skein::engine
