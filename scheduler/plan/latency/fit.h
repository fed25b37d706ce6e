// Fits the latency model to measured samples: least squares of the relative error, one SP size at a
// time, with no coefficient below zero. Tetris section 5.1 fits equation 1 this way, offline; its
// coefficients are times of work that is done, so none can be negative. Where the work of one of
// them is less than the noise, such as attention over the short prompts of a small model, the best
// fit has zero in its place.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "scheduler/plan/latency/latency_model.h"

namespace skein::scheduler {

struct LatencySample {
  int sp = 0;
  int64_t history_tokens = 0;
  int64_t chunk_tokens = 0;
  double seconds = 0;
};

struct SampleResidual {
  LatencySample sample;
  double predicted_s = 0;

  double Relative() const { return predicted_s / sample.seconds - 1; }
};

struct LatencyFit {
  std::map<int, SpCoefficients> sizes;    // LatencyModel::Make takes them
  std::vector<SampleResidual> residuals;  // by SP size, then in the order of the samples
};

// Sizes without samples with history get c = 2 d: attention of L tokens to C of history costs twice
// as much per pair as causal attention within the chunk.
//
// INVALID_ARGUMENT names the SP size and the problem; samples are never adjusted to fit. Problems:
// a size that is not a power of two; no tokens, negative history, or a time that is not finite and
// positive; fewer different (history, chunk) pairs than coefficients; samples that do not
// distinguish the coefficients; times that do not grow with the tokens; a coefficient that is
// impossibly large; a sample missed by more than kMaxRelativeError, in which case equation 1 does
// not describe this device.
inline constexpr double kMaxRelativeError = 0.5;
absl::StatusOr<LatencyFit> FitLatency(absl::Span<const LatencySample> samples);

}  // namespace skein::scheduler
