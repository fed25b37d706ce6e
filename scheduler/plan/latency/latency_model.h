// The duration of a prompt's chunk on a set of instances: Tetris section 5.1, equation 1.
//   T_s(C, L) = a_s + b_s L + c_s C L + d_s L^2
// for a chunk of L tokens with C tokens of history on s instances (SP size s).
//
// Ours: s instances may also run a chunk as (s / tp, tp), where tp of them share each dense part.
// Such a shape has coefficients of its own, and a chunk takes the time of its fastest shape: TP
// pays for short chunks, whose time is that of reading the weights. So the time of a size is the
// least of several such functions. It still grows with the tokens; if c <= 2 d in each shape, the
// same work still takes no longer when more of it is history.
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

// Which shapes chunks may run as.
struct ShapeLimits {
  int tp_max = 1 << 16;  // the instances of a node: more are never together
  // 0: the fastest shape. Otherwise each chunk runs with this tp (a power of two), or as much of it
  // as its instances allow, even if the model has no coefficients of that shape.
  int pinned_tp = 0;
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
  // The same, but that chunks take the time of the shapes within these limits.
  LatencyModel Within(const ShapeLimits& limits) const;
  const ShapeLimits& limits() const { return limits_; }

  // All methods below REQUIRE that `sp` is one of sp_sizes(), or `index` an index into it.
  double Seconds(int sp, int64_t history_tokens, int64_t chunk_tokens) const {
    return SecondsAt(IndexOf(sp), history_tokens, chunk_tokens);
  }
  // As (sp / tp, tp). Without coefficients of that shape, as (sp, 1).
  double SecondsWith(int sp, int tp, int64_t history_tokens, int64_t chunk_tokens) const;
  // The tp of the fastest shape of at most `tp_max`; the smallest of equal ones.
  int FastestTp(int sp, int64_t history_tokens, int64_t chunk_tokens, int tp_max = kMaxSp) const;
  // The tp that a chunk should run with whose instances allow at most `tp_possible` (a power of two
  // that divides sp): within the limits of this model, the fastest or the pinned one.
  int ChooseTp(int sp, int64_t history_tokens, int64_t chunk_tokens, int tp_possible) const;
  // The longest chunk that fits into `budget_s` (equation 1 solved for L); 0 if none does.
  int64_t SolveChunkTokens(int sp, int64_t history_tokens, double budget_s) const {
    return SolveChunkTokensAt(IndexOf(sp), history_tokens, budget_s);
  }

  double SecondsAt(int index, int64_t history_tokens, int64_t chunk_tokens) const {
    const auto at = static_cast<size_t>(index);
    double seconds = Of(first_[at], history_tokens, chunk_tokens);
    for (const SpCoefficients& k : others_[at]) {
      seconds = std::min(seconds, Of(k, history_tokens, chunk_tokens));
    }
    return seconds;
  }
  int64_t SolveChunkTokensAt(int index, int64_t history_tokens, double budget_s) const;

  const std::vector<int>& sp_sizes() const { return sp_sizes_; }  // ascending, not empty
  bool HasSp(int sp) const;
  // The size whose time stands for that of so many instances: the largest of at most as many, or
  // the smallest of all.
  int LargestSizeWithin(int instances) const;
  int IndexOf(int sp) const;
  // The least of each coefficient over the shapes that chunks of this size may run as: none of them
  // is faster than equation 1 with these.
  SpCoefficients LeastAt(int index) const;
  // Of (s, 1).
  const SpCoefficients& CoefficientsAt(int index) const {
    return coefficients_[static_cast<size_t>(index)];
  }
  // The other shapes of that size, by ascending tp.
  const std::vector<TensorShape>& TensorAt(int index) const {
    return tensor_[static_cast<size_t>(index)];
  }
  // There is a size with several shapes, or a pinned tp: a chunk's shape depends on its instances.
  bool HasShapes() const { return has_shapes_; }

 private:
  LatencyModel() = default;

  void Limit(const ShapeLimits& limits);  // sets first_ and others_

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
  ShapeLimits limits_;
  // As sp_sizes_: the shapes that a chunk takes the fastest of. Without tensor shapes there is the
  // first one alone.
  std::vector<SpCoefficients> first_;
  std::vector<std::vector<SpCoefficients>> others_;
  bool has_shapes_ = false;
};

}  // namespace skein::scheduler
