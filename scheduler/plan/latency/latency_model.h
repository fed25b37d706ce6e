// The duration of a prompt's chunk on a set of instances: Tetris section 5.1, equation 1.
//   T_s(C, L) = a_s + b_s L + c_s C L + d_s L^2
// for a chunk of L tokens with C tokens of history on s instances (SP size s).
#pragma once

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

// Immutable; const methods may be called from any thread.
class LatencyModel {
 public:
  static constexpr int kMaxSp = 1 << 16;

  // INVALID_ARGUMENT names the size and the coefficient: no sizes; a size that is not a power of
  // two in 1 ... kMaxSp; a coefficient that is negative or not finite; b and d both zero (time must
  // grow with the tokens).
  static absl::StatusOr<LatencyModel> Make(const std::map<int, SpCoefficients>& sizes);

  // All methods below REQUIRE that `sp` is one of sp_sizes(), or `index` an index into it.
  double Seconds(int sp, int64_t history_tokens, int64_t chunk_tokens) const {
    return SecondsAt(IndexOf(sp), history_tokens, chunk_tokens);
  }
  // The longest chunk that fits into `budget_s` (equation 1 solved for L); 0 if none does.
  int64_t SolveChunkTokens(int sp, int64_t history_tokens, double budget_s) const {
    return SolveChunkTokensAt(IndexOf(sp), history_tokens, budget_s);
  }

  double SecondsAt(int index, int64_t history_tokens, int64_t chunk_tokens) const {
    const SpCoefficients& k = coefficients_[static_cast<size_t>(index)];
    const auto history = static_cast<double>(history_tokens);
    const auto chunk = static_cast<double>(chunk_tokens);
    return k.a_s +
           chunk * (k.b_s_per_token + k.c_s_per_token2 * history + k.d_s_per_token2 * chunk);
  }
  int64_t SolveChunkTokensAt(int index, int64_t history_tokens, double budget_s) const;

  const std::vector<int>& sp_sizes() const { return sp_sizes_; }  // ascending, not empty
  bool HasSp(int sp) const;
  int IndexOf(int sp) const;
  const SpCoefficients& CoefficientsAt(int index) const {
    return coefficients_[static_cast<size_t>(index)];
  }

 private:
  LatencyModel() = default;

  std::vector<int> sp_sizes_;
  std::vector<SpCoefficients> coefficients_;  // as sp_sizes_
};

}  // namespace skein::scheduler
