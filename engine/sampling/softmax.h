// The scans over a vocabulary that sampling is made of. Plain loops that compilers vectorise.
#pragma once

#include <cstdint>
#include <span>

namespace skein::engine {

struct LogitScan {
  float max = 0.0f;
  bool usable = false;  // no NaN, no +inf, at least one above -inf
};

LogitScan ScanLogits(std::span<const float> logits);

// Smallest index whose value is `max`, which must occur.
int32_t FirstIndexOf(std::span<const float> logits, float max);

// weights[i] = exp((logits[i] - max) / temperature), in [0, 1], relative error below 1e-6; -inf
// gives 0. max ≥ every logit; temperature > 0. Returns the sum, added in f64.
double ExpWeights(std::span<const float> logits, float max, float temperature,
                  std::span<float> weights);

// log Σ exp(logits[i]), for usable logits with this max.
double LogSumExp(std::span<const float> logits, float max);

}  // namespace skein::engine
