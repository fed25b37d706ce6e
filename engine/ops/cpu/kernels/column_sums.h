// What both kernels of ColumnProduct share, over the Simd of the including file (include one
// simd_*.h before).
//
// Lanes are columns of out, and every element is one chain along k: sum = fma(x, w, sum), or the
// same with pairs of bf16, from the first element of a part of k to its last. So the order of a sum
// follows from k and its cuts alone: tiles, batches and the width of a register have no part in it,
// and a part of k costs no reduction of lanes. w lies along k, so it is turned on the way to the
// registers.
#pragma once

#include <type_traits>

#include "engine/ops/cpu/kernels/kernels.h"
#include "engine/ops/cpu/kernels/packed_product.h"

namespace skein::engine {
namespace {

// Elements of up to kLanes rows of a matrix in registers: a row a lane, and one register (of units,
// see packed_product.h) for each step of a sum. kWords: 4-byte words of a row, kLanes or 4.
template <typename Units, typename From, int kWords = Simd::kLanes>
struct Turned {
  // Two bf16 to be widened come as one word; an f16 is widened as it is read.
  static constexpr bool kIsF16 = std::is_same_v<From, F16>;
  static constexpr bool kSplits = Units::kPerUnit == 1 && std::is_same_v<From, BF16>;
  static constexpr int kSteps = kWords * (kSplits ? 2 : 1);
  static constexpr int kElements = kSteps * Units::kPerUnit;

  SKEIN_INLINE Turned() {}  // holds nothing until one of the Loads
  // `rows` ≥ 1; lanes from `rows` on repeat the last row.
  SKEIN_INLINE void Load(const From* from, int64_t stride, int rows) {
    if constexpr (!kIsF16) {
      Simd::LoadTransposed(from, stride * static_cast<int64_t>(sizeof(From)), rows, words);
    } else {
      static_assert(kWords == Simd::kLanes);
      for (int i = 0; i < kWords; ++i) {
        words[i] = Simd::Load(from + (i < rows ? i : rows - 1) * stride);
      }
      Simd::Transpose(words);
    }
  }
  // The first `elements` ≤ kElements; zeros for the others, which are not read.
  __attribute__((noinline)) void LoadFirst(const From* from, int64_t stride, int rows,
                                           int64_t elements) {
    From some[Simd::kLanes * kElements] = {};
    for (int i = 0; i < rows; ++i) {
      __builtin_memcpy(some + i * kElements, from + i * stride,
                       static_cast<size_t>(elements) * sizeof(From));
    }
    Load(some, kElements, Simd::kLanes);
  }
  // Calls body(step, register).
  template <typename Body>
  SKEIN_INLINE void ForSteps(const Body& body) const {
#pragma GCC unroll 16
    for (int i = 0; i < kWords; ++i) {
      if constexpr (kSplits) {
        body(2 * i, Simd::WidenFirst(words[i]));
        body(2 * i + 1, Simd::WidenSecond(words[i]));
      } else {
        body(i, words[i]);
      }
    }
  }

  Simd::V words[kWords];
};

// Calls body(a Turned to load, first element, its elements) over [0, count): whole groups of
// kLanes words, then of 4, then a last one that is not whole. Bodies are SKEIN_LAMBDA, so that each
// is compiled for its group.
#define SKEIN_LAMBDA __attribute__((always_inline))
template <typename Units, typename From, typename Body>
SKEIN_INLINE void ForGroups(int64_t count, const Body& body) {
  using Long = Turned<Units, From>;
  int64_t i = 0;
  for (; i + Long::kElements <= count; i += Long::kElements) body(Long(), i, Long::kElements);
  if constexpr (Simd::kLanes > 4 && !Long::kIsF16) {
    using Short = Turned<Units, From, 4>;
    for (; i + Short::kElements <= count; i += Short::kElements) body(Short(), i, Short::kElements);
    if (i < count) body(Short(), i, static_cast<int>(count - i));
  } else {
    if (i < count) body(Long(), i, static_cast<int>(count - i));
  }
}

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
