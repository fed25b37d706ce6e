// Sums of products of two rows that lie as they are, over the Simd of the including file (include
// one simd_*.h before).
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"

namespace skein::engine {
namespace {

// How two operands are read and multiplied: f32 by anything widened to f32 …
template <typename Weight>
struct Widened {
  using X = float;
  using W = Weight;
  using Register = Simd::V;
  static constexpr int kStep = Simd::kLanes;
  template <typename T>
  static SKEIN_INLINE Register Load(const T* p) {
    return Simd::Load(p);
  }
  template <typename T>
  static SKEIN_INLINE Register LoadFirst(const T* p, int n) {
    return Simd::LoadFirst(p, n);
  }
  static SKEIN_INLINE Simd::V Sum(Simd::V sum, Register x, Register w) {
    return Simd::Fma(x, w, sum);
  }
};

// … or bf16 by bf16 in pairs.
template <typename S>
struct Paired {
  using X = BF16;
  using W = BF16;
  using Register = typename S::Pairs;
  static constexpr int kStep = 2 * S::kLanes;
  static SKEIN_INLINE Register Load(const BF16* p) { return S::LoadPairs(p); }
  static SKEIN_INLINE Register LoadFirst(const BF16* p, int n) { return S::LoadFirstPairs(p, n); }
  static SKEIN_INLINE typename S::V Sum(typename S::V sum, Register x, Register w) {
    return S::DotPairs(sum, x, w);
  }
};

}  // namespace
}  // namespace skein::engine
