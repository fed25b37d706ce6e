#include "engine/sampling/softmax.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace skein::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLowest = -87.0f;        // exp of less is 0 here
constexpr size_t kStretchesAtOnce = 16;  // of LogSumExp

const SamplingKernels& TheKernels() {
  static const SamplingKernels kernels = SamplingKernelsFor(BestIsa());
  return kernels;
}

// As kernels/scans.h has it.
float ExpOfNegative(float x) {
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

LogitScan ScanLogits(std::span<const float> logits, std::span<float> maxima) {
  const bool finite = TheKernels().scan(logits.data(), logits.size(), maxima.data());
  float max = -kInfinity;
  for (const float most : maxima) max = max < most ? most : max;
  return {max, finite && max > -kInfinity};
}

std::span<const float> StretchOf(std::span<const float> logits, size_t s) {
  const size_t begin = s * kStretchLogits;
  return logits.subspan(begin, std::min(kStretchLogits, logits.size() - begin));
}

int32_t FirstIndexOf(std::span<const float> logits, std::span<const float> maxima, float max) {
  const auto stretch =
      static_cast<size_t>(std::find(maxima.begin(), maxima.end(), max) - maxima.begin());
  const auto from = logits.begin() + static_cast<std::ptrdiff_t>(stretch * kStretchLogits);
  return static_cast<int32_t>(std::find(from, logits.end(), max) - logits.begin());
}

double WeighLogits(std::span<const float> logits, const WeightScale& scale, std::span<double> sums,
                   std::span<float> weights) {
  TheKernels().weigh(logits.data(), logits.size(), scale,
                     weights.empty() ? nullptr : weights.data(), sums.data());
  double total = 0.0;
  for (const double sum : sums) total += sum;
  return total;
}

float ExpWeight(float logit, float max, float temperature) {
  return ExpOfNegative((logit - max) / temperature);
}

double LogSumExp(std::span<const float> logits, float max) {
  double sums[kStretchesAtOnce];
  double total = 0.0;
  while (!logits.empty()) {
    const size_t count = std::min(logits.size(), kStretchesAtOnce * kStretchLogits);
    total +=
        WeighLogits(logits.first(count), {.max = max}, std::span(sums).first(Stretches(count)));
    logits = logits.subspan(count);
  }
  return max + std::log(total);
}

}  // namespace skein::engine
