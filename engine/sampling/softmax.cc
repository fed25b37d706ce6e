#include "engine/sampling/softmax.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace skein::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = -87.0f;  // exp of less is 0 here
constexpr size_t kStretch = 1024;  // weights at a time

// exp(x) for x ≤ 0: 2^n · e^r with |r| ≤ ln 2 / 2, e^r by its Taylor series to r⁶ (error < 2e-7).
inline float ExpOfNegative(float x) {
  const float clamped = x < kLowest ? kLowest : x;
  constexpr float kRounder = 12582912.0f;  // 1.5 · 2²³: adding it rounds to an integer
  const float n = (clamped * 1.44269504f + kRounder) - kRounder;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;  // ln 2 in two parts
  float series = 1.0f / 720.0f;
  series = series * r + 1.0f / 120.0f;
  series = series * r + 1.0f / 24.0f;
  series = series * r + 1.0f / 6.0f;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const float power = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  return x < kLowest ? 0.0f : series * power;
}

}  // namespace

LogitScan ScanLogits(std::span<const float> logits) {
  float max = -kInfinity;
  int bad = 0;
  for (const float logit : logits) {
    bad |= !(logit < kInfinity);
    max = max < logit ? logit : max;
  }
  return {max, bad == 0 && max > -kInfinity};
}

LogitScan ScanLogits(std::span<const float> logits, std::span<float> maxima) {
  float max = -kInfinity;
  int bad = 0;
  for (size_t s = 0; s < maxima.size(); ++s) {
    const size_t begin = s * kStretchLogits;
    const size_t end = std::min(begin + kStretchLogits, logits.size());
    float most = -kInfinity;
    for (size_t i = begin; i < end; ++i) {
      bad |= !(logits[i] < kInfinity);
      most = most < logits[i] ? logits[i] : most;
    }
    maxima[s] = most;
    max = max < most ? most : max;
  }
  return {max, bad == 0 && max > -kInfinity};
}

int32_t FirstIndexOf(std::span<const float> logits, std::span<const float> maxima, float max) {
  const auto stretch =
      static_cast<size_t>(std::find(maxima.begin(), maxima.end(), max) - maxima.begin());
  const auto from = logits.begin() + static_cast<std::ptrdiff_t>(stretch * kStretchLogits);
  return static_cast<int32_t>(std::find(from, logits.end(), max) - logits.begin());
}

float ExpWeight(float logit, float max, float temperature) {
  return ExpOfNegative((logit - max) / temperature);
}

double ExpWeights(std::span<const float> logits, float max, float temperature,
                  std::span<float> weights) {
  double sum = 0.0;
  for (size_t begin = 0; begin < logits.size(); begin += kStretch) {
    const size_t end = std::min(begin + kStretch, logits.size());
    for (size_t i = begin; i < end; ++i) {
      weights[i] = ExpOfNegative((logits[i] - max) / temperature);
    }
    for (size_t i = begin; i < end; ++i) sum += weights[i];
  }
  return sum;
}

double LogSumExp(std::span<const float> logits, float max) {
  float weights[kStretch];
  double sum = 0.0;
  for (size_t begin = 0; begin < logits.size(); begin += kStretch) {
    const auto stretch = logits.subspan(begin, std::min(kStretch, logits.size() - begin));
    sum += ExpWeights(stretch, max, 1.0f, weights);
  }
  return max + std::log(sum);
}

}  // namespace skein::engine
