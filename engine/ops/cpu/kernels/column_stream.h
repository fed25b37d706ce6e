// ColumnProduct of a few rows, over the Simd of the including file (include one simd_*.h before).
//
// kPanel columns at a time, turned in registers where they meet all rows at once. Meanwhile the
// next columns are prefetched line by line, so memory is read from first to last.
#pragma once

#include <type_traits>

#include "engine/ops/cpu/kernels/column_sums.h"
#include "engine/ops/cpu/kernels/lanes.h"

namespace skein::engine {
namespace {

// acc[r] += `count` elements of kRows rows of x by up to kLanes columns.
template <typename Units, int kRows, typename Turn, typename W>
SKEIN_INLINE void StreamGroup(Turn turn, const typename Units::Element* x, int64_t x_stride,
                              const W* w, int64_t w_stride, int columns, int count,
                              Simd::V (&acc)[kRows]) {
  using X = typename Units::Element;
  if (count == Turn::kElements) {
    turn.Load(w, w_stride, columns);
    turn.ForSteps([&](int s, Simd::V weights) {
      for (int r = 0; r < kRows; ++r) {
        acc[r] = Units::Sum(acc[r], Units::SpreadA(x + r * x_stride + s * Units::kPerUnit),
                            Units::FromBits(weights));
      }
    });
    // Without this, the compiler spills the values of x for the next columns to the stack.
    asm volatile("" ::: "memory");
    return;
  }
  X some[kRows][Turn::kElements] = {};
  for (int r = 0; r < kRows; ++r) {
    __builtin_memcpy(some[r], x + r * x_stride, static_cast<size_t>(count) * sizeof(X));
  }
  turn.LoadFirst(w, w_stride, columns, count);
  const int64_t steps = StepsOf(count, Units::kPerUnit);
  turn.ForSteps([&](int s, Simd::V weights) {
    if (s >= steps) return;
    for (int r = 0; r < kRows; ++r) {
      acc[r] = Units::Sum(acc[r], Units::SpreadA(some[r] + s * Units::kPerUnit),
                          Units::FromBits(weights));
    }
  });
}

// acc[h][r] += `elements` of kRows rows of x by kPanel columns, as many as whole groups of four
// words have; returns how many. ForGroups does what is left. Steps alternate between the two
// registers of a row, because one chain of fmas waits for its own result.
template <typename Units, int kRows, typename W>
SKEIN_INLINE int64_t StreamWords(const typename Units::Element* x, int64_t x_stride, const W* w,
                                 int64_t w_stride, int64_t elements, Ahead<W>* ahead,
                                 Simd::V (&acc)[2][kRows]) {
  using Turn = Turned<Units, W, 4>;
  int64_t i = 0;
  for (; i + Turn::kElements <= elements; i += Turn::kElements) {
    ahead->Lines(Turn::kElements);
    Turn low, high;
    low.Load(w + i, w_stride, Simd::kLanes);
    high.Load(w + Simd::kLanes * w_stride + i, w_stride, Simd::kLanes);
    low.ForSteps([&](int s, Simd::V weights) SKEIN_LAMBDA {
      for (int r = 0; r < kRows; ++r) {
        const auto spread = Units::SpreadA(x + r * x_stride + i + s * Units::kPerUnit);
        acc[0][r] = Units::Sum(acc[0][r], spread, Units::FromBits(weights));
        acc[1][r] = Units::Sum(acc[1][r], spread, Units::FromBits(high.Step(s)));
      }
    });
  }
  return i;
}

// Sums of kRows rows by up to kPanel columns, a half of them a register.
template <int kRows>
struct StreamSums {
  Simd::V of[2][kRows];

  SKEIN_INLINE void AddBias(const float* bias, int64_t columns) {
    for (int h = 0; h < 2 && h * Simd::kLanes < columns; ++h) {
      const int64_t left = columns - h * Simd::kLanes;
      const Simd::V add = left >= Simd::kLanes
                              ? Simd::Load(bias + h * Simd::kLanes)
                              : Simd::LoadFirst(bias + h * Simd::kLanes, static_cast<int>(left));
      for (int r = 0; r < kRows; ++r) of[h][r] = Simd::Add(of[h][r], add);
    }
  }
  SKEIN_INLINE void Add(const StreamSums& other) {
    for (int h = 0; h < 2; ++h) {
      for (int r = 0; r < kRows; ++r) of[h][r] = Simd::Add(of[h][r], other.of[h][r]);
    }
  }
};

template <int kRows>
SKEIN_INLINE void WriteStream(const Matrix& out, int64_t column, int64_t columns,
                              const StreamSums<kRows>& sums) {
  WithType(out.data, out.dtype, [&](auto* to) {
    for (int r = 0; r < kRows; ++r) {
      auto* row = to + r * out.stride + column;
      for (int h = 0; h < 2; ++h, row += Simd::kLanes) {
        const int64_t left = columns - h * Simd::kLanes;
        if (left >= Simd::kLanes) {
          Simd::Store(row, sums.of[h][r]);
        } else if (left > 0) {
          Simd::StoreFirst(row, sums.of[h][r], static_cast<int>(left));
        }
      }
    }
  });
}

// Columns [column, column + columns) of out: kPanel of them, or fewer before `end`.
template <typename Units, typename W, int kRows, bool kWhole>
void StreamPanel(const ColumnProduct& p, int64_t column, int64_t end) {
  const int64_t columns = kWhole ? kPanel : end - column;
  const auto* x = static_cast<const typename Units::Element*>(p.x.data);
  const auto* w = static_cast<const W*>(p.w.data) + column * p.w.stride;
  Ahead<W> ahead(p.w, column + kPanel, end);
  StreamSums<kRows> levels[4];
  for (int part = 0; part < p.cuts.parts; ++part) {
    int64_t at = p.cuts.at[part];
    StreamSums<kRows> sums = {};
    if constexpr (kWhole && Simd::kLanes > 4 && !std::is_same_v<W, F16>) {
      at += StreamWords<Units>(x + at, p.x.stride, w + at, p.w.stride, p.cuts.at[part + 1] - at,
                               &ahead, sums.of);
    }
    ForGroups<Units, W>(p.cuts.at[part + 1] - at, [&](auto turn, int64_t i,
                                                      int count) SKEIN_LAMBDA {
      ahead.Lines(count);
      const auto half = [&](int h, int64_t left) SKEIN_LAMBDA {
        const int lanes = kWhole || left >= Simd::kLanes ? Simd::kLanes : static_cast<int>(left);
        StreamGroup<Units>(turn, x + at + i, p.x.stride, w + h * Simd::kLanes * p.w.stride + at + i,
                           p.w.stride, lanes, count, sums.of[h]);
      };
      half(0, columns);
      if (columns > Simd::kLanes) half(1, columns - Simd::kLanes);
    });
    if (part == 0 && p.bias != nullptr) sums.AddBias(p.bias + column, columns);
    levels[LevelOf(part)] = sums;
    JoinPart(part, [&](int to, int from) { levels[to].Add(levels[from]); });
  }
  WriteStream(p.out, column, columns, levels[0]);
}

template <typename Units, typename W, int kMost>
SKEIN_INLINE void StreamRowsOf(const ColumnProduct& p, int64_t column, int64_t end) {
  if constexpr (kMost > 1) {
    if (p.x.rows < kMost) return StreamRowsOf<Units, W, kMost - 1>(p, column, end);
  }
  if (end - column >= kPanel) return StreamPanel<Units, W, kMost, true>(p, column, end);
  StreamPanel<Units, W, kMost, false>(p, column, end);
}

template <typename S>
void StreamColumns(const ColumnProduct& p, int64_t begin, int64_t end) {
  WithUnits<S>(p, [&](auto units, auto w) {
    for (int64_t column = begin; column < end; column += kPanel) {
      StreamRowsOf<decltype(units), decltype(w), kStreamedRowsMax>(p, column, end);
    }
  });
}

}  // namespace
}  // namespace skein::engine
