// The duration of a prompt's chunk on a set of instances: Tetris section 5.1, equation 1.
//   T_s(C, L) = a_s + b_s L + c_s C L + d_s L^2
// for a chunk of L tokens with C tokens of history on s instances (SP size s).
//
// Ours: s instances may also run a chunk as (s / tp, tp), where tp of them share each dense part.
// Such a shape has coefficients of its own, and a chunk takes the time of its fastest shape: TP
// pays for short chunks, whose time is that of reading the weights.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/statusor.h"

namespace skein::scheduler {

struct SpCoefficients {
  double a_s = 0;             // independent of the tokens
  double b_s_per_token = 0;   // the dense layers
  double c_s_per_token2 = 0;  // attention to the history
  double d_s_per_token2 = 0;  // attention within the chunk
};

// Instances that run chunks as (ranks / tp, tp).
struct TensorShape {
  int ranks = 0;
  int tp = 0;
  SpCoefficients coefficients;
};

// Immutable; const methods may be called from any thread.
class LatencyModel {
 public:
  static constexpr int kMaxSp = 1 << 16;

  // INVALID_ARGUMENT names the size and the coefficient: no sizes; a size that is not a power of
  // two in 1 ... kMaxSp; a coefficient that is negative or not finite; b and d both zero (time must
  // grow with the tokens). Or a tensor shape: its ranks are no size, its tp is not a power of two
  // in 2 ... ranks, or occurs twice.
  static absl::StatusOr<LatencyModel> Make(const std::map<int, SpCoefficients>& sizes,
                                           const std::vector<TensorShape>& tensor = {});

  // All methods below REQUIRE that `sp` is one of sp_sizes(), or `index` an index into it.
  double Seconds(int sp, int64_t history_tokens, int64_t chunk_tokens) const {
    return SecondsAt(IndexOf(sp), history_tokens, chunk_tokens);
  }
  // As (sp / tp, tp). Without coefficients of that shape, as (sp, 1).
  double SecondsWith(int sp, int tp, int64_t history_tokens, int64_t chunk_tokens) const;
  // The tp of the fastest shape; the smallest of equal ones.
  int FastestTp(int sp, int64_t history_tokens, int64_t chunk_tokens) const;
  // The longest chunk that fits into `budget_s` (equation 1 solved for L); 0 if none does.
  int64_t SolveChunkTokens(int sp, int64_t history_tokens, double budget_s) const {
    return SolveChunkTokensAt(IndexOf(sp), history_tokens, budget_s);
  }

  double SecondsAt(int index, int64_t history_tokens, int64_t chunk_tokens) const {
    const auto at = static_cast<size_t>(index);
    double seconds = Of(coefficients_[at], history_tokens, chunk_tokens);
    for (const TensorShape& shape : tensor_[at]) {
      seconds = std::min(seconds, Of(shape.coefficients, history_tokens, chunk_tokens));
    }
    return seconds;
  }
  int64_t SolveChunkTokensAt(int index, int64_t history_tokens, double budget_s) const;

  const std::vector<int>& sp_sizes() const { return sp_sizes_; }  // ascending, not empty
  bool HasSp(int sp) const;
  int IndexOf(int sp) const;
  // Of (s, 1).
  const SpCoefficients& CoefficientsAt(int index) const {
    return coefficients_[static_cast<size_t>(index)];
  }
  // The other shapes of that size, by ascending tp.
  const std::vector<TensorShape>& TensorAt(int index) const {
    return tensor_[static_cast<size_t>(index)];
  }

 private:
  LatencyModel() = default;

  static double Of(const SpCoefficients& k, int64_t history_tokens, int64_t chunk_tokens) {
    const auto history = static_cast<double>(history_tokens);
    const auto chunk = static_cast<double>(chunk_tokens);
    return k.a_s +
           chunk * (k.b_s_per_token + k.c_s_per_token2 * history + k.d_s_per_token2 * chunk);
  }
  static int64_t Solve(const SpCoefficients& k, int64_t history_tokens, double budget_s);

  std::vector<int> sp_sizes_;
  std::vector<SpCoefficients> coefficients_;      // as sp_sizes_
  std::vector<std::vector<TensorShape>> tensor_;  // as sp_sizes_
};

}  // namespace skein::scheduler
