// ColumnProduct of any number of rows, over the Simd of the including file (include one simd_*.h
// before).
//
// kPanel columns of w are turned into a panel, [step][column] units, and the panels of a strip of
// columns meet every tile of rows (packed, [step][row] units) in turn, with its sums in registers.
// A panel holds as many parts of k as fit: their sums join in L1 before the tile is stored. Where
// not even one part fits, its tiles are stored and loaded again between pieces, which changes no
// sum.
#pragma once

#include "engine/ops/cpu/kernels/column_sums.h"
#include "engine/ops/cpu/kernels/lanes.h"

namespace skein::engine {
namespace {

template <typename Units, typename From>
void PackTile(const ColumnProduct& p, int tile, std::byte* packed) {
  using X = typename Units::Element;
  constexpr int kUnit = Units::kPerUnit;
  const int64_t most = TileRows(p.x.rows, Simd::kColumnRows), first = tile * most;
  const int rows = static_cast<int>(p.x.rows - first < most ? p.x.rows - first : most);
  const auto* from = static_cast<const From*>(p.x.data) + first * p.x.stride;
  X* to = reinterpret_cast<X*>(packed) + first * StepsOf(p.cuts, 0, p.cuts.parts, kUnit) * kUnit;
  for (int part = 0; part < p.cuts.parts; ++part) {
    const int64_t at = p.cuts.at[part], k = p.cuts.at[part + 1] - at;
    ForGroups<Units, From>(k, [&](auto turn, int64_t i, int count) SKEIN_LAMBDA {
      for (int row = 0; row < rows; row += Simd::kLanes) {
        const int lanes = rows - row < Simd::kLanes ? rows - row : Simd::kLanes;
        const From* group = from + row * p.x.stride + at + i;
        if (count == decltype(turn)::kElements) {
          turn.Load(group, p.x.stride, lanes);
        } else {
          turn.LoadFirst(group, p.x.stride, lanes, count);
        }
        const int64_t steps = StepsOf(count, kUnit);
        auto* units = reinterpret_cast<float*>(to + (i / kUnit * rows + row) * kUnit);
        turn.ForSteps([&](int s, Simd::V unit) {
          if (s < steps) Simd::StoreFirst(units + s * rows, unit, lanes);
        });
      }
    });
    to += StepsOf(k, kUnit) * rows * kUnit;
  }
}

// Elements [at, at + count) of up to kPanel columns of w into a panel. A few steps behind them may
// be written.
template <typename Units, typename W>
void PackPanel(const ColumnProduct& p, int64_t column, int64_t end, int64_t at, int64_t count,
               Ahead<W>* ahead, typename Units::Element* panel) {
  constexpr int kUnit = Units::kPerUnit;
  const auto* w = static_cast<const W*>(p.w.data) + column * p.w.stride + at;
  ForGroups<Units, W>(count, [&](auto turn, int64_t i, int elements) SKEIN_LAMBDA {
    ahead->Lines(elements);
    for (int h = 0; h < 2; ++h) {
      const int64_t left = end - column - h * Simd::kLanes;
      if (left <= 0) break;
      const W* from = w + h * Simd::kLanes * p.w.stride + i;
      if (elements < decltype(turn)::kElements) {
        turn.LoadFirst(from, p.w.stride,
                       static_cast<int>(left < Simd::kLanes ? left : Simd::kLanes), elements);
      } else if (left >= Simd::kLanes) {
        turn.Load(from, p.w.stride, Simd::kLanes);
      } else {
        turn.Load(from, p.w.stride, static_cast<int>(left));
      }
      auto* to = panel + (i / kUnit * kPanel + h * Simd::kLanes) * kUnit;
      turn.ForSteps([&](int s, Simd::V units) {
        Simd::Store(reinterpret_cast<float*>(to + s * kPanel * kUnit), units);
      });
    }
  });
}

// What a panel holds: some parts of k, a whole subtree of the sum, or a piece of one.
struct PanelPass {
  int parts = 1;
  int64_t steps[kProductPartsMax] = {};  // of each part
  int64_t first_step = 0;                // of the packed rows
  const float* bias = nullptr;           // of the strip, joins the first part; or null
  bool goes_on = false;                  // the part begins with the sums that are there
};

// sums [kRows][kPanel] of kRows packed rows by a panel; `bias`: of the panel's columns, or null.
template <typename Units, int kRows>
void MultiplyRows(const typename Units::Element* x, const typename Units::Element* w,
                  const PanelPass& pass, const float* bias, float* sums) {
  constexpr int kUnit = Units::kPerUnit;
  float levels[3][kRows * kPanel];
  const auto at = [](float* base, int r, int h) { return base + r * kPanel + h * Simd::kLanes; };
  for (int part = 0; part < pass.parts; ++part) {
    Simd::V acc[kRows][2];
    for (int r = 0; r < kRows; ++r) {
      for (int h = 0; h < 2; ++h) {
        acc[r][h] = pass.goes_on ? Simd::Load(at(sums, r, h)) : Simd::Zero();
      }
    }
    for (int64_t s = 0; s < pass.steps[part]; ++s) {
      const auto first = Units::LoadB(w), second = Units::LoadB(w + Simd::kLanes * kUnit);
      for (int r = 0; r < kRows; ++r) {
        const auto unit = Units::SpreadA(x + r * kUnit);
        acc[r][0] = Units::Sum(acc[r][0], unit, first);
        acc[r][1] = Units::Sum(acc[r][1], unit, second);
      }
      w += kPanel * kUnit;
      x += kRows * kUnit;
    }
    if (part == 0 && bias != nullptr) {
      for (int r = 0; r < kRows; ++r) {
        for (int h = 0; h < 2; ++h) {
          acc[r][h] = Simd::Add(acc[r][h], Simd::Load(bias + h * Simd::kLanes));
        }
      }
    }
    // As levels[to] += acc, but acc stays in registers to the end.
    JoinPart(part, [&](int to, int) {
      for (int r = 0; r < kRows; ++r) {
        for (int h = 0; h < 2; ++h) {
          acc[r][h] = Simd::Add(Simd::Load(at(levels[to], r, h)), acc[r][h]);
        }
      }
    });
    const bool last = part + 1 == pass.parts;
    float* to = last ? sums : levels[LevelOf(part + 1) - 1];
    for (int r = 0; r < kRows; ++r) {
      for (int h = 0; h < 2; ++h) Simd::Store(at(to, r, h), acc[r][h]);
    }
  }
}

template <typename Units, int kMost>
SKEIN_INLINE void MultiplyRowsOf(int rows, const typename Units::Element* x,
                                 const typename Units::Element* w, const PanelPass& pass,
                                 const float* bias, float* sums) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return MultiplyRowsOf<Units, kMost - 1>(rows, x, w, pass, bias, sums);
  }
  MultiplyRows<Units, kMost>(x, w, pass, bias, sums);
}

template <typename Units, typename W>
class ColumnBlock {
 public:
  // Columns before `end`. All outlive this.
  ColumnBlock(const ColumnProduct& p, int64_t end, std::byte* scratch)
      : p_(p),
        end_(end),
        rows_(static_cast<int>(p.x.rows)),
        panels_max_(rows_ >= kManyRows ? kStripColumns / kPanel : 1),
        panel_bytes_(rows_ >= kManyRows ? kPanelsBytesL2 / panels_max_ : kPanelBytesL1),
        together_(PartsTogether()),
        panels_(reinterpret_cast<X*>(scratch)),
        sums_(reinterpret_cast<float*>(scratch + kPanelsBytesL2 + kPanelSlackBytes)) {}

  // Columns a strip has.
  int64_t strip() const { return panels_max_ * kPanel; }

  // Columns [column, column + strip()) of out.
  void Multiply(int64_t column) {
    column_ = column;
    columns_ = end_ - column < strip() ? end_ - column : strip();
    Ahead<W> ahead(p_.w, column + columns_, end_);
    float bias[kStripColumns] = {};
    for (int64_t c = 0; c < columns_ && p_.bias != nullptr; ++c) bias[c] = p_.bias[column + c];
    for (int part = 0; part < p_.cuts.parts; part += together_) {
      const int number = part / together_;
      const float* joins = part == 0 && p_.bias != nullptr ? bias : nullptr;
      if (together_ == 1) {
        OnePart(part, joins, &ahead, Level(LevelOf(number)));
      } else {
        SomeParts(part, joins, &ahead, Level(LevelOf(number)));
      }
      JoinPart(number, [&](int to, int from) { AddLevel(Level(to), Level(from)); });
    }
    Write();
  }

 private:
  using X = typename Units::Element;
  static constexpr int kUnit = Units::kPerUnit;
  static constexpr int64_t kStepBytes = kPanel * static_cast<int64_t>(sizeof(float));
  // Rows that make up for panels that do not stay in L1.
  static constexpr int kManyRows = 64;
  static_assert(kStripColumns % kPanel == 0);

  // The sums of a strip: [panel][row][kPanel].
  float* Level(int level) const { return sums_ + level * rows_ * strip(); }
  X* Panel(int panel) const {
    return panels_ + panel * (panel_bytes_ / static_cast<int64_t>(sizeof(X)));
  }

  // The parts of a pass: a power of two.
  int PartsTogether() const {
    for (int parts = p_.cuts.parts; parts > 1; parts /= 2) {
      int64_t steps = 0;
      for (int first = 0; first < p_.cuts.parts; first += parts) {
        const int64_t of_pass = StepsOf(p_.cuts, first, parts, kUnit);
        steps = of_pass > steps ? of_pass : steps;
      }
      // A panel's last steps may pass its end, but then the next panel is packed.
      if (steps * kStepBytes <= panel_bytes_) return parts;
    }
    return 1;
  }

  void SomeParts(int first, const float* bias, Ahead<W>* ahead, float* sums) const {
    PanelPass pass{.parts = together_, .bias = bias};
    pass.first_step = StepsOf(p_.cuts, 0, first, kUnit);
    for (int i = 0; i < together_; ++i) {
      pass.steps[i] = StepsOf(p_.cuts, first + i, 1, kUnit);
    }
    for (int panel = 0; panel * kPanel < columns_; ++panel) {
      X* to = Panel(panel);
      for (int i = 0; i < together_; ++i) {
        const int64_t at = p_.cuts.at[first + i];
        PackPanel<Units, W>(p_, column_ + panel * kPanel, end_, at, p_.cuts.at[first + i + 1] - at,
                            ahead, to);
        to += pass.steps[i] * kPanel * kUnit;
      }
    }
    MultiplyTiles(pass, sums);
  }

  // In pieces of about the same length whose panels fit.
  void OnePart(int part, const float* bias, Ahead<W>* ahead, float* sums) const {
    constexpr int64_t kGroup = Turned<Units, W>::kElements;
    const int64_t most = panel_bytes_ / kStepBytes * kUnit / kGroup * kGroup;
    const int64_t at = p_.cuts.at[part], k = p_.cuts.at[part + 1] - at;
    const int64_t pieces = k <= most ? 1 : (k + most - 1) / most;
    const int64_t piece = (k / pieces + kGroup - 1) / kGroup * kGroup;
    PanelPass pass;
    pass.first_step = StepsOf(p_.cuts, 0, part, kUnit);
    for (int64_t i = 0;; i += piece) {
      const int64_t count = k - i < piece ? k - i : piece;
      for (int panel = 0; panel * kPanel < columns_; ++panel) {
        PackPanel<Units, W>(p_, column_ + panel * kPanel, end_, at + i, count, ahead, Panel(panel));
      }
      pass.steps[0] = StepsOf(count, kUnit);
      pass.bias = i + count == k ? bias : nullptr;
      pass.goes_on = i > 0;
      MultiplyTiles(pass, sums);
      if (i + count == k) return;
      pass.first_step += pass.steps[0];
    }
  }

  void MultiplyTiles(const PanelPass& pass, float* sums) const {
    const auto* packed = reinterpret_cast<const X*>(p_.packed);
    const int64_t steps = StepsOf(p_.cuts, 0, p_.cuts.parts, kUnit);
    const int most = TileRows(rows_, Simd::kColumnRows);
    for (int first = 0; first < rows_; first += most) {
      const int rows = rows_ - first < most ? rows_ - first : most;
      const X* x = packed + (first * steps + pass.first_step * rows) * kUnit;
      for (int panel = 0; panel * kPanel < columns_; ++panel) {
        MultiplyRowsOf<Units, Simd::kColumnRows>(
            rows, x, Panel(panel), pass,
            pass.bias == nullptr ? nullptr : pass.bias + panel * kPanel,
            sums + (int64_t{panel} * rows_ + first) * kPanel);
      }
    }
  }

  void AddLevel(float* to, const float* from) const {
    const int64_t panels = (columns_ + kPanel - 1) / kPanel;
    for (int64_t i = 0; i < panels * rows_ * kPanel; i += Simd::kLanes) {
      Simd::Store(to + i, Simd::Add(Simd::Load(to + i), Simd::Load(from + i)));
    }
  }

  void Write() const {
    WithType(p_.out.data, p_.out.dtype, [&](auto* out) {
      for (int64_t c = 0; c < columns_; c += kPanel) {
        const int64_t columns = columns_ - c < kPanel ? columns_ - c : kPanel;
        for (int r = 0; r < rows_; ++r) {
          auto* to = out + r * p_.out.stride + column_ + c;
          const float* from = sums_ + c * rows_ + r * kPanel;
          ForLanes(
              columns, [&](int64_t i) { Simd::Store(to + i, Simd::Load(from + i)); },
              [&](int64_t i, int n) { Simd::StoreFirst(to + i, Simd::LoadFirst(from + i, n), n); });
        }
      }
    });
  }

  const ColumnProduct& p_;
  const int64_t end_;
  const int rows_;
  const int panels_max_;
  const int64_t panel_bytes_;
  const int together_;
  X* const panels_;
  float* const sums_;
  int64_t column_ = 0;   // of the strip
  int64_t columns_ = 0;  // that the strip has
};

template <typename S>
void PackColumnRows(const ColumnProduct& p, int tile, std::byte* packed) {
  if constexpr (S::kHasPairs) {
    if (p.bf16_pairs) return PackTile<PairUnits<S>, BF16>(p, tile, packed);
  }
  WithType(p.x.data, p.x.dtype, [&](auto* x) {
    PackTile<FloatUnits, std::remove_cvref_t<decltype(*x)>>(p, tile, packed);
  });
}

template <typename S>
void MultiplyColumns(const ColumnProduct& p, int64_t begin, int64_t end, std::byte* scratch) {
  WithUnits<S>(p, [&](auto units, auto w) {
    ColumnBlock<decltype(units), decltype(w)> block(p, end, scratch);
    for (int64_t column = begin; column < end; column += block.strip()) block.Multiply(column);
  });
}

}  // namespace
}  // namespace skein::engine
