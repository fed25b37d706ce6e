// ColumnProduct of any number of rows, over the Simd of the including file (include one simd_*.h
// before).
//
// Columns of w become panels, [step][column] quads, and the panels of a strip of columns meet every
// tile of rows (packed, [step][row] quads) in turn, with its sums in registers.
#pragma once

#include <algorithm>

#include "engine/ops/cpu/kernels/column_sums.h"

namespace skein::engine {
namespace {

// Quads of kQuads rows (or fewer, of whose last quads nothing is stored), `stride` floats a step.
template <typename Quads, typename RowAt>
SKEIN_INLINE void PackQuads(const RowAt& row_at, int rows, int64_t count, float* to,
                            int64_t stride) {
  ForQuads<Quads, 1>([&](int, int q) { return row_at(q); }, count,
                     [&](const Simd::V(&quads)[1]) SKEIN_LAMBDA {
                       for (int s = 0; s < Quads::kSteps; ++s, to += stride) {
                         const Simd::V step = Quads::Step(quads[0], s);
                         if (rows == kQuads) {
                           Simd::Store(to, step);
                         } else {
                           Simd::StoreFirst(to, step, 4 * rows);
                         }
                       }
                     });
}

SKEIN_INLINE float AsFloat(BF16 x) { return ToFloat(x); }
SKEIN_INLINE float AsFloat(F16 x) { return static_cast<float>(x); }
SKEIN_INLINE float AsFloat(float x) { return x; }

// The same of one row of another dtype than w.
template <typename Quads, typename From>
void PackOther(const From* from, int64_t count, float* to, int64_t stride) {
  for (int64_t i = 0; i < count; i += Quads::kElements, to += Quads::kSteps * stride) {
    for (int64_t e = 0; e < Quads::kElements; ++e) {
      to[e % Quads::kSteps * stride + e / Quads::kSteps] =
          i + e < count ? AsFloat(from[i + e]) : 0.0f;
    }
  }
}

template <typename Quads>
void PackRows(const ColumnProduct& p, int64_t first, int rows, float* to) {
  for (int part = 0; part < p.cuts.parts; ++part) {
    const int64_t at = p.cuts.at[part], k = p.cuts.at[part + 1] - at;
    WithType(p.x.data, p.x.dtype, [&](auto* x) {
      using X = std::remove_cvref_t<decltype(*x)>;
      x += first * p.x.stride + at;
      if constexpr (std::is_same_v<X, typename Quads::From>) {
        for (int row = 0; row < rows; row += kQuads) {
          const int count = rows - row < kQuads ? rows - row : kQuads;
          const auto row_at = [&](int q) {
            return x + (row + std::min(q, count - 1)) * p.x.stride;
          };
          PackQuads<Quads>(row_at, count, k, to + 4 * row, 4 * rows);
        }
      } else if constexpr (Quads::Units::kPerUnit == 1) {
        for (int row = 0; row < rows; ++row) {
          PackOther<Quads>(x + row * p.x.stride, k, to + 4 * row, 4 * rows);
        }
      }
    });
    to += Quads::StepsOf(k) * 4 * rows;
  }
}

template <typename S>
void PackColumnRows(const ColumnProduct& p, int tile, std::byte* packed) {
  WithQuads<S>(p, [&](auto quads) {
    using Quads = decltype(quads);
    const int64_t first = int64_t{tile} * p.tile_rows;
    const auto rows = static_cast<int>(std::min<int64_t>(p.tile_rows, p.x.rows - first));
    auto* to = reinterpret_cast<float*>(packed) + first * Quads::StepsOf(p.cuts) * 4;
    PackRows<Quads>(p, first, rows, to);
  });
}

template <typename Quads>
void PackPanel(const ColumnProduct& p, int64_t column, int64_t columns, float* to) {
  constexpr int kStep = 2 * Simd::kLanes;
  const PanelOfWeights<typename Quads::From> w(p.w, column, columns);
  for (int part = 0; part < p.cuts.parts; ++part) {
    const int64_t at = p.cuts.at[part], k = p.cuts.at[part + 1] - at;
    ForQuads<Quads, 2>([&](int g, int q) { return w.At(g, q) + at; }, k,
                       [&](const Simd::V(&quads)[2]) SKEIN_LAMBDA {
                         for (int s = 0; s < Quads::kSteps; ++s, to += kStep) {
                           Simd::Store(to, Quads::Step(quads[0], s));
                           Simd::Store(to + Simd::kLanes, Quads::Step(quads[1], s));
                         }
                       });
  }
}

// A strip of columns: panels that are packed one after the other.
struct Strip {
  int64_t column, columns;
  int64_t steps;  // of k with all its parts
  const float* panels;
  float bias[kStripPanels][Simd::kLanes];  // BiasQuads

  int64_t panel_floats() const { return steps * 2 * Simd::kLanes; }
};

// kRows rows by a strip.
template <typename Quads, int kRows>
class TileSums {
 public:
  TileSums(const ColumnProduct& p, const Strip& strip, int row)
      : p_(p),
        strip_(strip),
        row_(row),
        x_(reinterpret_cast<const float*>(p.packed) + row * strip.steps * 4),
        w_(strip.panels) {}

  void Multiply() {
    for (int part = 0; part < p_.cuts.parts; ++part) {
      const int64_t steps = Quads::StepsOf(p_.cuts.at[part + 1] - p_.cuts.at[part]);
      const int64_t pieces = std::max<int64_t>(1, (steps + kPieceSteps - 1) / kPieceSteps);
      for (int64_t i = 0; i < pieces; ++i) {
        AddPiece(part, steps * (i + 1) / pieces - steps * i / pieces, i > 0, i + 1 == pieces);
      }
    }
  }

 private:
  // A piece of the rows stays in L1 while it meets all panels.
  static constexpr int64_t kPieceSteps = 96;
  static constexpr int64_t kLine = 64;

  SKEIN_INLINE void AddPiece(int part, int64_t steps, bool goes_on, bool ends) {
    const float* panel = w_;
    for (int i = 0; i * kPanelColumns < strip_.columns; ++i, panel += strip_.panel_floats()) {
      PanelChains<kRows> chains;
      for (int r = 0; r < kRows; ++r) {
        for (int g = 0; g < 2; ++g) chains[r][g] = goes_on ? chains_[i][r][g] : Simd::Zero();
      }
      const float *x = x_, *w = panel;
      // The first panels fetch the next piece, a line a step. The CPU does not: it comes from L3.
      const auto* next = reinterpret_cast<const char*>(x_ + steps * 4 * kRows) + i * steps * kLine;
      for (int64_t s = 0; s < steps; ++s, x += 4 * kRows, w += 2 * Simd::kLanes) {
        __builtin_prefetch(next + s * kLine, 0, 2);
        SumStep<typename Quads::Units>(x, Simd::Load(w), Simd::Load(w + Simd::kLanes), chains);
      }
      if (ends) {
        auto sums = PanelSums<kRows>::Of(chains);
        if (part == 0 && p_.bias != nullptr) sums.AddBias(strip_.bias[i]);
        tree_[i].Add(part, sums);
        if (part + 1 == p_.cuts.parts) {
          const int64_t c = i * kPanelColumns;
          tree_[i].whole().Write(p_.out, row_, strip_.column + c, strip_.columns - c);
        }
      } else {
        for (int r = 0; r < kRows; ++r) {
          for (int g = 0; g < 2; ++g) chains_[i][r][g] = chains[r][g];
        }
      }
    }
    x_ += steps * 4 * kRows;
    w_ += steps * 2 * Simd::kLanes;
  }

  const ColumnProduct& p_;
  const Strip& strip_;
  const int row_;
  const float *x_, *w_;  // of the next piece
  PanelChains<kRows> chains_[kStripPanels];
  PartTree<PanelSums<kRows>> tree_[kStripPanels];
};

template <typename Quads>
void MultiplyStrip(const ColumnProduct& p, int64_t column, int64_t columns, int64_t steps,
                   float* panels) {
  Strip strip{column, columns, steps, panels, {}};
  for (int64_t c = 0; c < columns; c += kPanelColumns, panels += strip.panel_floats()) {
    PackPanel<Quads>(p, column + c, columns - c, panels);
    BiasQuads(p, column + c, columns - c, strip.bias[c / kPanelColumns]);
  }
  for (int row = 0; row < p.x.rows; row += p.tile_rows) {
    const int rows = std::min(static_cast<int>(p.x.rows) - row, p.tile_rows);
    WithRows<Simd::kColumnRows>(
        rows, [&](auto count) { TileSums<Quads, count()>(p, strip, row).Multiply(); });
  }
}

template <typename S>
void MultiplyColumns(const ColumnProduct& p, int64_t begin, int64_t end, std::byte* scratch) {
  WithQuads<S>(p, [&](auto quads) {
    using Quads = decltype(quads);
    const int64_t steps = Quads::StepsOf(p.cuts);
    const auto panel_bytes =
        std::max<int64_t>(1, steps * 2 * Simd::kLanes * static_cast<int64_t>(sizeof(float)));
    const int64_t strip =
        kPanelColumns * std::clamp<int64_t>(kPanelsBytesL2 / panel_bytes, 1, kStripPanels);
    for (int64_t column = begin; column < end; column += strip) {
      MultiplyStrip<Quads>(p, column, std::min(strip, end - column), steps,
                           reinterpret_cast<float*>(scratch));
    }
  });
}

}  // namespace
}  // namespace skein::engine
