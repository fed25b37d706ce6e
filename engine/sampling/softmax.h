// The scans over a vocabulary that sampling is made of. Plain loops that compilers vectorise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace skein::engine {

struct LogitScan {
  float max = 0.0f;
  bool usable = false;  // no NaN, no +inf, at least one above -inf
};

LogitScan ScanLogits(std::span<const float> logits);

// The logits in stretches of this many; the last one may be shorter.
inline constexpr size_t kStretchLogits = 256;
constexpr size_t Stretches(size_t logits) { return (logits + kStretchLogits - 1) / kStretchLogits; }

// As above; also sets maxima[s], for all Stretches(logits.size()), to the largest logit of stretch
// s.
LogitScan ScanLogits(std::span<const float> logits, std::span<float> maxima);

// Smallest index whose value is `max`, which must occur. `maxima` are those of ScanLogits.
int32_t FirstIndexOf(std::span<const float> logits, std::span<const float> maxima, float max);

// weights[i] = exp((logits[i] - max) / temperature), in [0, 1], relative error below 1e-6; -inf
// gives 0. max ≥ every logit; temperature > 0. Returns the sum, added in f64.
double ExpWeights(std::span<const float> logits, float max, float temperature,
                  std::span<float> weights);

// One weight of ExpWeights, the same bits.
float ExpWeight(float logit, float max, float temperature);

// log Σ exp(logits[i]), for usable logits with this max.
double LogSumExp(std::span<const float> logits, float max);

}  // namespace skein::engine
