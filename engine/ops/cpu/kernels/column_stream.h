// ColumnProduct of a few rows, over the Simd of the including file (include one simd_*.h before).
//
// The quads of a panel's columns meet all rows of a tile in registers. Meanwhile the next panel's
// columns are prefetched, so memory is read from first to last.
#pragma once

#include <algorithm>

#include "engine/ops/cpu/kernels/column_sums.h"

namespace skein::engine {
namespace {

template <typename Quads, int kRows, bool kPrefetch>
void StreamPanel(const ColumnProduct& p, const float* x, int row, int64_t column, int64_t columns) {
  using W = typename Quads::From;
  const PanelOfWeights<W> w(p.w, column, columns);
  // The next panel's lines: in the order of memory, or at the same steps where columns lie apart.
  const bool apart = p.w.stride != p.w.cols;
  const int64_t ahead = apart ? 1 : kPanelColumns;
  const W* next[kPanelColumns];
  for (int c = 0; c < kPanelColumns; ++c) {
    const int64_t from = apart ? c * p.w.stride : c * kQuads * Quads::kElements;
    next[c] = w.of[0] + kPanelColumns * p.w.stride + from;
  }
  PartTree<PanelSums<kRows>> tree;
  for (int part = 0; part < p.cuts.parts; ++part) {
    const int64_t at = p.cuts.at[part], k = p.cuts.at[part + 1] - at;
    PanelChains<kRows> chains;
    for (auto& of_row : chains) of_row[0] = of_row[1] = Simd::Zero();
    int64_t i = 0;
    ForQuads<Quads, 2>([&](int g, int q) { return w.At(g, q) + at; }, k,
                       [&](const Simd::V(&quads)[2]) SKEIN_LAMBDA {
                         if (kPrefetch && i % (kQuads * Quads::kElements) == 0) {
                           for (const W* line : next)
                             __builtin_prefetch(line + (at + i) * ahead, 0, 2);
                         }
                         i += Quads::kElements;
                         for (int s = 0; s < Quads::kSteps; ++s, x += 4 * kRows) {
                           SumStep<typename Quads::Units>(x, Quads::Step(quads[0], s),
                                                          Quads::Step(quads[1], s), chains);
                         }
                       });
    auto sums = PanelSums<kRows>::Of(chains);
    if (part == 0 && p.bias != nullptr) {
      float bias[Simd::kLanes];
      BiasQuads(p, column, columns, bias);
      sums.AddBias(bias);
    }
    tree.Add(part, sums);
  }
  tree.whole().Write(p.out, row, column, columns);
}

// The tile of rows from `row` on, packed at x, by the columns of a panel.
template <typename Quads>
SKEIN_INLINE void StreamTile(const ColumnProduct& p, const float* x, int row, int64_t column,
                             int64_t columns) {
  const int rows = std::min(static_cast<int>(p.x.rows) - row, p.tile_rows);
  WithRows<Simd::kTurnedRows>(rows, [&](auto count) {
    if (row == 0) return StreamPanel<Quads, count(), true>(p, x, row, column, columns);
    StreamPanel<Quads, count(), false>(p, x, row, column, columns);
  });
}

template <typename S>
void StreamColumns(const ColumnProduct& p, int64_t begin, int64_t end) {
  WithQuads<S>(p, [&](auto quads) {
    const auto* packed = reinterpret_cast<const float*>(p.packed);
    const int64_t row_floats = quads.StepsOf(p.cuts) * 4;
    for (int64_t column = begin; column < end; column += kPanelColumns) {
      for (int row = 0; row < p.x.rows; row += p.tile_rows) {
        StreamTile<decltype(quads)>(p, packed + row * row_floats, row, column, end - column);
      }
    }
  });
}

}  // namespace
}  // namespace skein::engine
