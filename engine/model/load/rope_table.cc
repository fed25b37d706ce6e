#include "engine/model/load/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace skein::engine {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// Llama 3.1: long waves are slowed by `factor`, short ones kept, those between blended.
double ScaleLlama3(double frequency, const RopeConfig& rope) {
  const double turns = static_cast<double>(rope.original_max_positions) * frequency / kTwoPi;
  if (turns < rope.low_freq_factor) return frequency / rope.factor;
  if (turns > rope.high_freq_factor) return frequency;
  const double smooth =
      (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1.0 - smooth) * frequency / rope.factor + smooth * frequency;
}

// The (fractional) pair that turns `rotations` times over the original context.
double YarnPair(double rotations, const RopeConfig& rope, int head_dim) {
  const double context = static_cast<double>(rope.original_max_positions);
  return head_dim * std::log(context / (rotations * kTwoPi)) / (2.0 * std::log(rope.theta));
}

// Pairs below `low` turn often and are kept; above `high` they are slowed by `factor`.
void ScaleYarn(const RopeConfig& rope, int head_dim, std::vector<double>* frequencies) {
  double low = YarnPair(rope.beta_fast, rope, head_dim);
  double high = YarnPair(rope.beta_slow, rope, head_dim);
  if (rope.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1.0);
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies->size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    double& frequency = (*frequencies)[i];
    frequency = frequency / rope.factor * ramp + frequency * (1.0 - ramp);
  }
}

double YarnMscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

}  // namespace

std::vector<double> InverseFrequencies(const RopeConfig& rope, int head_dim) {
  std::vector<double> frequencies(head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) {
    frequencies[i] = std::pow(rope.theta, -2.0 * static_cast<double>(i) / head_dim);
    if (rope.kind == RopeKind::kLinear) frequencies[i] /= rope.factor;
    if (rope.kind == RopeKind::kLlama3) frequencies[i] = ScaleLlama3(frequencies[i], rope);
  }
  if (rope.kind == RopeKind::kYarn) ScaleYarn(rope, head_dim, &frequencies);
  return frequencies;
}

double AttentionFactor(const RopeConfig& rope) {
  if (rope.kind != RopeKind::kYarn) return 1.0;
  if (rope.attention_factor.has_value()) return *rope.attention_factor;
  if (rope.mscale != 0.0 && rope.mscale_all_dim != 0.0) {
    return YarnMscale(rope.factor, rope.mscale) / YarnMscale(rope.factor, rope.mscale_all_dim);
  }
  return YarnMscale(rope.factor, 1.0);
}

RopeAngles::RopeAngles(const RopeConfig& rope, int head_dim, int64_t positions)
    : head_dim_(head_dim), positions_(positions) {
  const std::vector<double> frequencies = InverseFrequencies(rope, head_dim);
  const double scale = AttentionFactor(rope);
  cos_.reserve(positions * frequencies.size());
  sin_.reserve(positions * frequencies.size());
  for (int64_t position = 0; position < positions; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      cos_.push_back(static_cast<float>(std::cos(angle) * scale));
      sin_.push_back(static_cast<float>(std::sin(angle) * scale));
    }
  }
}

}  // namespace skein::engine
