// The latency model of measured samples: least squares of the relative error, one SP size at a
// time. Tetris section 5.1 fits equation 1 so, offline.
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

// Sizes without any sample that has history get c = 2 d: attention of L tokens to C of history
// costs twice per pair what causal attention within the chunk does.
//
// INVALID_ARGUMENT names the SP size and what is wrong, nothing is bent to fit: a sample with a
// size that is not a power of two, no tokens, negative history or a time that is not finite and
// positive; fewer different (history, chunk) pairs than coefficients; samples that do not tell the
// coefficients apart; a coefficient below zero (by more than 0.1 % of the time of every sample;
// less than that is taken as zero) or so large that it cannot be a time; a sample missed by more
// than kMaxRelativeError, which says that equation 1 does not describe this device.
inline constexpr double kMaxRelativeError = 0.5;
absl::StatusOr<LatencyFit> FitLatency(absl::Span<const LatencySample> samples);

}  // namespace skein::scheduler
