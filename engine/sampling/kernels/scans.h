// The kernels of sampling_kernels.h over the Simd and the DoubleSums of the file that includes
// this. Internal linkage, as everything made of Simd.
//
// DoubleSums: a sum in f64 for each lane of a register. Add(x) adds a register of floats, Store
// writes kLanes sums.
#pragma once

#include <limits>

#include "engine/sampling/kernels/sampling_kernels.h"

namespace skein::engine {
namespace {

constexpr size_t kSumLanes = 16;
constexpr size_t kRegisters = kSumLanes / Simd::kLanes;  // of a block of kSumLanes logits
constexpr float kNothing = -std::numeric_limits<float>::infinity();

SKEIN_INLINE size_t StretchSize(size_t begin, size_t n) {
  return n - begin < kStretchLogits ? n - begin : kStretchLogits;
}

// Calls body(block, count) for the n logits, 16 at a time. The last block may be a copy of `count`
// logits, filled up with -inf.
template <typename Body>
SKEIN_INLINE void ForBlocks(const float* logits, size_t n, const Body& body) {
  size_t i = 0;
  for (; i + kSumLanes <= n; i += kSumLanes) body(logits + i, kSumLanes);
  if (i == n) return;
  float rest[kSumLanes];
  for (size_t l = 0; l < kSumLanes; ++l) rest[l] = i + l < n ? logits[i + l] : kNothing;
  body(rest, n - i);
}

bool ScanStretches(const float* logits, size_t n, float* maxima) {
  using S = Simd;
  const S::V lowest = S::Set(std::numeric_limits<float>::lowest());
  S::V zeros = S::Zero();  // NaN where a logit was NaN or +inf
  for (size_t begin = 0; begin < n; begin += kStretchLogits) {
    S::V most[kRegisters];
    for (S::V& m : most) m = S::Set(kNothing);
    ForBlocks(logits + begin, StretchSize(begin, n), [&](const float* block, size_t /*count*/) {
      for (size_t r = 0; r < kRegisters; ++r) {
        const S::V x = S::Load(block + r * S::kLanes);
        most[r] = S::Max(x, most[r]);  // the second where one is NaN
        zeros = S::Fma(S::Max(lowest, x), S::Zero(), zeros);
      }
    });
    for (size_t r = 1; r < kRegisters; ++r) most[0] = S::Max(most[0], most[r]);
    maxima[begin / kStretchLogits] = S::ReduceMax(most[0]);
  }
  return S::ReduceAdd(zeros) == 0.0f;
}

// exp(x) for x ≤ 0: 2^n · e^r with |r| ≤ ln 2 / 2, e^r by its Taylor series to r⁶ (error < 2e-7).
// Operation by operation ExpWeight of engine/sampling/softmax.cc, and of the device's sampler.
SKEIN_INLINE Simd::V ExpOfNegative(Simd::V x) {
  using S = Simd;
  const S::V lowest = S::Set(-87.0f), rounder = S::Set(12582912.0f);
  const S::V clamped = S::Max(x, lowest);
  const S::V biased = S::Add(S::Mul(clamped, S::Set(1.44269504f)), rounder);
  const S::V n = S::Sub(biased, rounder);
  const S::V r =
      S::Add(S::Sub(clamped, S::Mul(n, S::Set(0.693359375f))), S::Mul(n, S::Set(2.12194440e-4f)));
  S::V series = S::Set(1.0f / 720.0f);
  series = S::Add(S::Mul(series, r), S::Set(1.0f / 120.0f));
  series = S::Add(S::Mul(series, r), S::Set(1.0f / 24.0f));
  series = S::Add(S::Mul(series, r), S::Set(1.0f / 6.0f));
  series = S::Add(S::Mul(series, r), S::Set(0.5f));
  series = S::Add(S::Mul(series, r), S::Set(1.0f));
  series = S::Add(S::Mul(series, r), S::Set(1.0f));
  return S::ZeroBelow(S::AddExponent(series, biased), x, lowest);  // never subnormal: exact
}

double AddLanes(double (&lanes)[kSumLanes]) {
  for (size_t half = kSumLanes / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

template <bool kStore>
void WeighStretches(const float* logits, size_t n, const WeightScale& scale, float* weights,
                    double* sums) {
  using S = Simd;
  const S::V max = S::Set(scale.max), temperature = S::Set(scale.temperature);
  const S::V weight_min = S::Set(scale.weight_min);
  for (size_t begin = 0; begin < n; begin += kStretchLogits) {
    DoubleSums parts[kRegisters];
    float* to = weights + (kStore ? begin : 0);
    ForBlocks(logits + begin, StretchSize(begin, n), [&](const float* block, size_t count) {
      for (size_t r = 0; r < kRegisters; ++r) {
        const S::V x = S::Sub(S::Load(block + r * S::kLanes), max);
        S::V weight = ExpOfNegative(S::Div(x, temperature));
        weight = S::ZeroBelow(weight, weight, weight_min);
        parts[r].Add(weight);
        if constexpr (kStore) {
          const size_t first = r * S::kLanes;
          if (first + S::kLanes <= count) {
            S::Store(to + first, weight);
          } else if (first < count) {
            S::StoreFirst(to + first, weight, static_cast<int>(count - first));
          }
        }
      }
      if constexpr (kStore) to += count;
    });
    double lanes[kSumLanes];
    for (size_t r = 0; r < kRegisters; ++r) parts[r].Store(lanes + r * S::kLanes);
    sums[begin / kStretchLogits] = AddLanes(lanes);
  }
}

void Weigh(const float* logits, size_t n, const WeightScale& scale, float* weights, double* sums) {
  if (weights == nullptr) {
    WeighStretches<false>(logits, n, scale, nullptr, sums);
  } else {
    WeighStretches<true>(logits, n, scale, weights, sums);
  }
}

constexpr SamplingKernels kScans = {ScanStretches, Weigh};

}  // namespace
}  // namespace skein::engine
