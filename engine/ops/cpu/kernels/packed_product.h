// c (+)= a · b for a small `a` in row order and a `b` packed in panels, over the Simd of the
// including file (include one simd_*.h before).
//
// A panel is 2 * kLanes columns of b: [steps][2 * kLanes] units, where a unit is one f32 or one
// pair of bf16 along the summed dimension. A tile is kTileRows rows of a times one panel, its sums
// in registers, an element of a broadcast to all lanes.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

namespace skein::engine {
namespace {

constexpr int kPanel = 2 * Simd::kLanes;

// Operands in f32.
struct FloatUnits {
  using Element = float;
  static constexpr int kPerUnit = 1;
  using Register = Simd::V;
  static SKEIN_INLINE Register LoadB(const float* p) { return Simd::Load(p); }
  static SKEIN_INLINE Register FromBits(Simd::V bits) { return bits; }
  static SKEIN_INLINE Register SpreadA(const float* p) { return Simd::Set(*p); }
  static SKEIN_INLINE Simd::V Sum(Simd::V sum, Register a, Register b) {
    return Simd::Fma(a, b, sum);
  }
};

// Operands in pairs of bf16.
template <typename S>
struct PairUnits {
  using Element = BF16;
  static constexpr int kPerUnit = 2;
  using Register = typename S::Pairs;
  static SKEIN_INLINE Register LoadB(const BF16* p) { return S::LoadPairs(p); }
  static SKEIN_INLINE Register FromBits(typename S::V bits) { return S::AsPairs(bits); }
  static SKEIN_INLINE Register SpreadA(const BF16* p) { return S::SetPair(p); }
  static SKEIN_INLINE typename S::V Sum(typename S::V sum, Register a, Register b) {
    return S::DotPairs(sum, a, b);
  }
};

template <typename Units, int kRows>
void MultiplyTile(const typename Units::Element* a, int64_t a_stride,
                  const typename Units::Element* panel, int64_t steps, float* c, int64_t c_stride,
                  bool accumulate) {
  constexpr int kUnit = Units::kPerUnit;
  Simd::V acc[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    for (int h = 0; h < 2; ++h) {
      acc[r][h] = accumulate ? Simd::Load(c + r * c_stride + h * Simd::kLanes) : Simd::Zero();
    }
  }
  for (int64_t s = 0; s < steps; ++s) {
    const auto b0 = Units::LoadB(panel + s * kPanel * kUnit);
    const auto b1 = Units::LoadB(panel + (s * kPanel + Simd::kLanes) * kUnit);
    for (int r = 0; r < kRows; ++r) {
      const auto x = Units::SpreadA(a + r * a_stride + s * kUnit);
      acc[r][0] = Units::Sum(acc[r][0], x, b0);
      acc[r][1] = Units::Sum(acc[r][1], x, b1);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int h = 0; h < 2; ++h) Simd::Store(c + r * c_stride + h * Simd::kLanes, acc[r][h]);
  }
}

// All rows by one panel; a remainder of rows goes in tiles of halving size.
template <typename Units, int kRows>
SKEIN_INLINE void MultiplyPanel(int64_t rows, const typename Units::Element* a, int64_t a_stride,
                                const typename Units::Element* panel, int64_t steps, float* c,
                                int64_t c_stride, bool accumulate) {
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    MultiplyTile<Units, kRows>(a + r * a_stride, a_stride, panel, steps, c + r * c_stride, c_stride,
                               accumulate);
  }
  if constexpr (kRows > 1) {
    MultiplyPanel<Units, kRows / 2>(rows - r, a + r * a_stride, a_stride, panel, steps,
                                    c + r * c_stride, c_stride, accumulate);
  }
}

// c [rows, panels * kPanel]; a [rows, steps * kPerUnit]; panels one after the other.
template <typename Units>
void MultiplyPacked(int64_t rows, const typename Units::Element* a, int64_t a_stride,
                    const typename Units::Element* b, int64_t panels, int64_t steps, float* c,
                    int64_t c_stride, bool accumulate) {
  for (int64_t panel = 0; panel < panels; ++panel) {
    MultiplyPanel<Units, Simd::kTileRows>(rows, a, a_stride,
                                          b + panel * steps * kPanel * Units::kPerUnit, steps,
                                          c + panel * kPanel, c_stride, accumulate);
  }
}

}  // namespace
}  // namespace skein::engine
