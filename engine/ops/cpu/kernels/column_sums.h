// What both kernels of ColumnProduct share, over the Simd of the including file (include one
// simd_*.h before).
//
// The order of a sum. Four chains run along each part of k: sum = fma(x, w, sum), or the same with
// pairs of bf16. Chain c takes word c of every quad of words (16 bytes of f32 or bf16, see
// ColumnQuads). A part that does not fill its last quad goes on with zeros. The part's sum is
// (0 + 2) + (1 + 3) of its chains; the bias joins the first part, and parts are added in pairs. So
// the order follows from k, its cuts and the dtype of w alone: tiles, batches and the width of a
// register have no part in it.
//
// A register holds a quad of each of kQuads columns, so w is not transposed on its way there: 16
// bytes of it stay side by side.
#pragma once

#include <cstring>
#include <type_traits>

#include "engine/ops/cpu/kernels/kernels.h"
#include "engine/ops/cpu/kernels/lanes.h"
#include "engine/ops/cpu/kernels/packed_product.h"

namespace skein::engine {
namespace {

// Columns, or rows of x, that a register holds a quad of.
constexpr int kQuads = Simd::kLanes / 4;
// A panel is as many columns as two registers have: quad q of register g is column 2q + g.
constexpr int kPanelColumns = 2 * kQuads;

// Quads of elements in memory (From) and as they are multiplied: floats, or pairs of bf16.
template <typename Units_, typename From_>
struct ColumnQuads {
  using Units = Units_;
  using From = From_;
  // Two bf16 to be widened come as one word: a quad is two steps of the sum, not one.
  static constexpr bool kSplits = Units::kPerUnit == 1 && std::is_same_v<From, BF16>;
  static constexpr int kSteps = kSplits ? 2 : 1;
  static constexpr int kElements = 4 * kSteps * Units::kPerUnit;

  static int64_t StepsOf(int64_t elements) {
    return (elements + kElements - 1) / kElements * kSteps;
  }
  static int64_t StepsOf(const ProductCuts& cuts) {
    int64_t steps = 0;
    for (int i = 0; i < cuts.parts; ++i) steps += StepsOf(cuts.at[i + 1] - cuts.at[i]);
    return steps;
  }
  static SKEIN_INLINE Simd::V Step(Simd::V quads, int s) {
    if constexpr (!kSplits) return quads;
    return s == 0 ? Simd::WidenFirst(quads) : Simd::WidenSecond(quads);
  }
};

// Calls body(quads of kSets sets of kQuads rows) for every quad of `count` elements; row_at(set, q)
// is a pointer to the first element of a row.
template <typename Quads, int kSets, typename RowAt, typename Body>
SKEIN_INLINE void ForQuads(const RowAt& row_at, int64_t count, const Body& body) {
  constexpr int64_t kBlock = kQuads * Quads::kElements;
  int64_t i = 0;
  const auto row = [&](int set) { return [&, set](int q) { return row_at(set, q) + i; }; };
  for (; i + kBlock <= count; i += kBlock) {
    Simd::V quads[kSets][kQuads];
    for (int set = 0; set < kSets; ++set) Simd::LoadQuads(row(set), quads[set]);
    for (int at = 0; at < kQuads; ++at) {
      Simd::V some[kSets];
      for (int set = 0; set < kSets; ++set) some[set] = quads[set][at];
      body(some);
    }
  }
  for (; i < count; i += Quads::kElements) {
    Simd::V some[kSets];
    for (int set = 0; set < kSets; ++set) {
      some[set] = i + Quads::kElements <= count
                      ? Simd::LoadQuad(row(set))
                      : Simd::LoadFirstQuad(row(set), static_cast<int>(count - i));
    }
    body(some);
  }
}

// The columns of a panel. Those from `columns` (≥ 1) on are the last one again.
template <typename W>
struct PanelOfWeights {
  PanelOfWeights(const ConstMatrix& w, int64_t column, int64_t columns) {
    const auto* first = static_cast<const W*>(w.data) + column * w.stride;
    for (int64_t c = 0; c < kPanelColumns; ++c) {
      of[c] = first + (c < columns ? c : columns - 1) * w.stride;
    }
  }
  // Row q of set g for ForQuads.
  SKEIN_INLINE const W* At(int g, int q) const { return of[2 * q + g]; }

  const W* of[kPanelColumns];
};

// The biases of up to a panel's columns in the places of their sums, as PanelSums has them.
SKEIN_INLINE void BiasQuads(const ColumnProduct& p, int64_t column, int64_t columns,
                            float (&quads)[Simd::kLanes]) {
  for (int c = 0; c < kPanelColumns; ++c) {
    const float bias = p.bias != nullptr && c < columns ? p.bias[column + c] : 0.0f;
    quads[c / 2 * 4 + c % 2] = quads[c / 2 * 4 + 2 + c % 2] = bias;
  }
}

// The chains of kRows rows by a panel's columns: quad q of register g is column 2q + g.
template <int kRows>
using PanelChains = Simd::V[kRows][2];

// Sums of kRows rows by a panel. Register p has those of rows 2p and 2p + 1: quad q is columns
// 2q, 2q + 1 of the one, then of the other.
template <int kRows>
struct PanelSums {
  static constexpr int kPairs = (kRows + 1) / 2;
  Simd::V of[kPairs];

  SKEIN_INLINE static PanelSums Of(const PanelChains<kRows>& chains) {
    PanelSums sums;
    for (int p = 0; p < kPairs; ++p) {
      const int second = 2 * p + 1 < kRows ? 2 * p + 1 : 2 * p;
      sums.of[p] = Simd::ReduceQuads(chains[2 * p][0], chains[2 * p][1], chains[second][0],
                                     chains[second][1]);
    }
    return sums;
  }
  SKEIN_INLINE void Add(const PanelSums& other) {
    for (int p = 0; p < kPairs; ++p) of[p] = Simd::Add(of[p], other.of[p]);
  }
  // `bias`: of the panel's columns, as BiasQuads has them.
  SKEIN_INLINE void AddBias(const float* bias) {
    for (int p = 0; p < kPairs; ++p) of[p] = Simd::Add(of[p], Simd::Load(bias));
  }
  // To the rows of out from `row` on.
  SKEIN_INLINE void Write(const Matrix& out, int row, int64_t column, int64_t columns) const {
    WithType(out.data, out.dtype, [&](auto* to) {
      using To = std::remove_reference_t<decltype(*to)>;
      to += row * out.stride + column;
#pragma GCC unroll 8
      for (int p = 0; p < kPairs; ++p, to += 2 * out.stride) {
        To both[2 * kPanelColumns];
        Simd::Store(both, Simd::SplitQuads(of[p]));
        const auto write = [&](To* row_to, const To* from) SKEIN_LAMBDA {
          if (columns >= kPanelColumns) {
            std::memcpy(row_to, from, kPanelColumns * sizeof(To));
          } else {
            std::memcpy(row_to, from, static_cast<size_t>(columns) * sizeof(To));
          }
        };
        write(to, both);
        if (2 * p + 1 < kRows) write(to + out.stride, both + kPanelColumns);
      }
    });
  }
};

// The parts of k, added in pairs as they come.
template <typename Sums>
class PartTree {
 public:
  // The sum of part `part` waits at a level for its partners, or joins those that it completes.
  SKEIN_INLINE void Add(int part, Sums sums) {
    int level = __builtin_popcount(static_cast<unsigned>(part));
    for (int rest = part; rest % 2 == 1; rest /= 2) {
      Sums both = levels_[--level];
      both.Add(sums);
      sums = both;
    }
    levels_[level] = sums;
  }
  // After the last part.
  const Sums& whole() const { return levels_[0]; }

 private:
  Sums levels_[4];
};

// One step: a quad of each row, packed one after the other, by those of a panel.
template <typename Units, int kRows>
SKEIN_INLINE void SumStep(const float* x, Simd::V first, Simd::V second,
                          PanelChains<kRows>& chains) {
  for (int r = 0; r < kRows; ++r) {
    const auto quad = Units::FromBits(Simd::SetQuad(x + 4 * r));
    chains[r][0] = Units::Sum(chains[r][0], quad, Units::FromBits(first));
    chains[r][1] = Units::Sum(chains[r][1], quad, Units::FromBits(second));
  }
}

// Calls body(std::integral_constant of `rows`), for 1 … kMost.
template <int kMost, typename Body>
SKEIN_INLINE void WithRows(int rows, const Body& body) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return WithRows<kMost - 1>(rows, body);
  }
  body(std::integral_constant<int, kMost>());
}

// Calls body(ColumnQuads), as a value, for how the product reads w.
template <typename S, typename Body>
SKEIN_INLINE void WithQuads(const ColumnProduct& p, const Body& body) {
  if constexpr (S::kHasPairs) {
    if (p.bf16_pairs) return body(ColumnQuads<PairUnits<S>, BF16>());
  }
  if (p.w.dtype == DType::kF32) return body(ColumnQuads<FloatUnits, float>());
  if (p.w.dtype == DType::kBF16) return body(ColumnQuads<FloatUnits, BF16>());
  body(ColumnQuads<FloatUnits, F16>());
}

}  // namespace
}  // namespace skein::engine
