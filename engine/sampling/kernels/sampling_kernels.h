// The scans over a row of logits that sampling is made of, compiled once for each ISA. All give the
// same bits: an element is computed by the same operations, none of them fused, and sums are of 16
// lanes whatever the width of a register. They run on one thread, allocate nothing and check
// nothing.
#pragma once

#include <cstddef>

#include "engine/ops/cpu/cpu_isa.h"

namespace skein::engine {

// The logits in stretches of this many; the last one may be shorter.
inline constexpr size_t kStretchLogits = 256;
constexpr size_t Stretches(size_t logits) { return (logits + kStretchLogits - 1) / kStretchLogits; }

// Turns a logit into its weight relative to the most likely token's: exp((logit - max) /
// temperature), or 0 where that is less than `weight_min`.
struct WeightScale {
  float max = 0.0f;          // ≥ every logit, finite
  float temperature = 1.0f;  // > 0
  float weight_min = 0.0f;
};

struct SamplingKernels {
  // Sets maxima[s], for all Stretches(n), to the largest logit of stretch s (NaN counts as -inf).
  // Returns whether there is neither NaN nor +inf.
  bool (*scan)(const float* logits, size_t n, float* maxima) = nullptr;
  // Sets weights[i] for all n logits, unless it is null, and sums[s], for all Stretches(n), to the
  // weights of stretch s added in f64: lane l of 16 adds l, l + 16, …; then lanes are added in
  // halves. REQUIRES: no NaN, no +inf. Weights are in [0, 1], their relative error is below 1e-6;
  // below exp(-87) they are 0.
  void (*weigh)(const float* logits, size_t n, const WeightScale& scale, float* weights,
                double* sums) = nullptr;
};

// REQUIRES: IsSupported(isa), and not kAuto.
SamplingKernels SamplingKernelsFor(CpuIsa isa);

// What each file of kernels defines.
extern const SamplingKernels kAvx512Sampling, kAvx2Sampling, kPortableSampling;

}  // namespace skein::engine
