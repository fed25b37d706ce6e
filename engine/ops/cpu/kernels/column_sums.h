// What both kernels of ColumnProduct share, over the Simd of the including file (include one
// simd_*.h before).
//
// Lanes are columns of out, and every element is one chain along k: sum = fma(x, w, sum), or the
// same with pairs of bf16, from the first element of a part of k to its last. So the order of a sum
// follows from k and its cuts alone: tiles, batches and the width of a register have no part in it,
// and a part of k costs no reduction of lanes. w lies along k, so it is turned on the way to the
// registers.
#pragma once

#include "engine/ops/cpu/kernels/kernels.h"
#include "engine/ops/cpu/kernels/packed_product.h"
#include "engine/ops/cpu/kernels/turned.h"

namespace skein::engine {
namespace {

constexpr int64_t StepsOf(int64_t elements, int per_unit) {
  return (elements + per_unit - 1) / per_unit;
}

SKEIN_INLINE int64_t StepsOf(const ProductCuts& cuts, int first, int parts, int per_unit) {
  int64_t steps = 0;
  for (int i = first; i < first + parts; ++i) {
    steps += StepsOf(cuts.at[i + 1] - cuts.at[i], per_unit);
  }
  return steps;
}

// The sum of part `part` waits at this level for its partners …
constexpr int LevelOf(int part) { return __builtin_popcount(static_cast<unsigned>(part)); }

// … and joins them: calls add(to level, from level) for each pair of sums that the part completes.
// Parts come in order; the last one of all leaves the whole at level 0.
template <typename Add>
SKEIN_INLINE void JoinPart(int part, const Add& add) {
  int level = LevelOf(part);
  for (int rest = part; rest % 2 == 1; rest /= 2, --level) add(level - 1, level);
}

// Prefetches rows of w from `column` on into L2, line by line in the order of memory.
template <typename W>
class Ahead {
 public:
  Ahead(const ConstMatrix& w, int64_t column, int64_t end)
      : row_(reinterpret_cast<const char*>(static_cast<const W*>(w.data) + column * w.stride)),
        stride_(w.stride * static_cast<int64_t>(sizeof(W))),
        row_bytes_(w.cols * static_cast<int64_t>(sizeof(W))),
        rows_(end - column) {}
  // As many lines as kPanel times `elements` fill.
  SKEIN_INLINE void Lines(int elements) {
    const int count = kPanel * elements * static_cast<int>(sizeof(W)) / kLine;
    for (int i = 0; i < count && rows_ > 0; ++i) {
      __builtin_prefetch(row_ + at_, 0, 2);
      at_ += kLine;
      if (at_ < row_bytes_) continue;
      at_ = 0;
      --rows_;
      row_ += stride_;
    }
  }

 private:
  static constexpr int kLine = 64;
  const char* row_;
  const int64_t stride_, row_bytes_;
  int64_t rows_, at_ = 0;
};

// Calls body(Units, type of w), both as values, for how the product multiplies.
template <typename S, typename Body>
SKEIN_INLINE void WithUnits(const ColumnProduct& p, const Body& body) {
  if constexpr (S::kHasPairs) {
    if (p.bf16_pairs) return body(PairUnits<S>(), BF16());
  }
  if (p.w.dtype == DType::kF32) return body(FloatUnits(), float());
  if (p.w.dtype == DType::kBF16) return body(FloatUnits(), BF16());
  body(FloatUnits(), F16());
}

}  // namespace
}  // namespace skein::engine
