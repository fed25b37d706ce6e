// The scans over a vocabulary that sampling is made of: kernels of the best instruction set that
// the CPU has (kernels/sampling_kernels.h). Their results have the same bits on all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/sampling/kernels/sampling_kernels.h"

namespace skein::engine {

struct LogitScan {
  float max = 0.0f;
  bool usable = false;  // no NaN, no +inf, at least one above -inf
};

// Also sets maxima[s], for all Stretches(logits.size()), to the largest logit of stretch s.
LogitScan ScanLogits(std::span<const float> logits, std::span<float> maxima);

// The logits of stretch s of `logits`.
std::span<const float> StretchOf(std::span<const float> logits, size_t s);

// Smallest index whose value is `max`, which must occur. `maxima` are those of ScanLogits.
int32_t FirstIndexOf(std::span<const float> logits, std::span<const float> maxima, float max);

// Sets sums[s], for all Stretches(logits.size()), to the weights of stretch s added up (see
// SamplingKernels::weigh), and weights[i] to those of all logits unless it is empty. -inf weighs
// 0. REQUIRES: usable logits. Returns the sum of all stretches, in their order.
double WeighLogits(std::span<const float> logits, const WeightScale& scale, std::span<double> sums,
                   std::span<float> weights = {});

// One weight of WeighLogits without a weight_min, the same bits.
float ExpWeight(float logit, float max, float temperature);

// log Σ exp(logits[i]), for usable logits with this max.
double LogSumExp(std::span<const float> logits, float max);

}  // namespace skein::engine
