// StreamProduct over the Simd of the including file (include one simd_*.h before).
//
// A tile is kStreamRows rows of x times kColumns rows of w, summed in registers along k; all tiles
// of the same rows of w follow each other, so w comes from memory once and x from cache. While a
// tile reads its rows of w it prefetches the next ones: with one row of x this is what keeps the
// memory bus full.
#pragma once

#include "engine/ops/cpu/kernels/kernels.h"

namespace skein::engine {
namespace {

constexpr int kColumns = 4;

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

template <typename T>
SKEIN_INLINE void StoreSums(T* out, const float (&sums)[kColumns], int n) {
  Simd::StoreFirst(out, Simd::LoadFirst(sums, n), n);
}

// sums[r][c] = x[r] · w[c].
template <typename Dot, int kRows, int kCols, bool kPrefetch>
SKEIN_INLINE void StreamTile(const typename Dot::X* x, int64_t x_stride, const typename Dot::W* w,
                             int64_t w_stride, int64_t k, float (&sums)[kRows][kColumns]) {
  Simd::V acc[kRows][kCols];
  for (auto& row : acc) {
    for (auto& sum : row) sum = Simd::Zero();
  }
  int64_t i = 0;
  for (; i + Dot::kStep <= k; i += Dot::kStep) {
    typename Dot::Register weights[kCols];
    for (int c = 0; c < kCols; ++c) {
      weights[c] = Dot::Load(w + c * w_stride + i);
      if (kPrefetch) __builtin_prefetch(w + (c + kCols) * w_stride + i, 0, 2);
    }
    for (int r = 0; r < kRows; ++r) {
      const typename Dot::Register activation = Dot::Load(x + r * x_stride + i);
      for (int c = 0; c < kCols; ++c) acc[r][c] = Dot::Sum(acc[r][c], activation, weights[c]);
    }
  }
  if (i < k) {
    const int rest = static_cast<int>(k - i);
    for (int r = 0; r < kRows; ++r) {
      const typename Dot::Register activation = Dot::LoadFirst(x + r * x_stride + i, rest);
      for (int c = 0; c < kCols; ++c) {
        acc[r][c] = Dot::Sum(acc[r][c], activation, Dot::LoadFirst(w + c * w_stride + i, rest));
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int c = 0; c < kCols; ++c) sums[r][c] = Simd::ReduceAdd(acc[r][c]);
  }
}

template <typename Dot, int kRows, int kCols>
void StreamRows(const StreamProduct& p, int first_row, int64_t column) {
  float sums[kRows][kColumns] = {};
  const auto* x = static_cast<const typename Dot::X*>(p.x) + first_row * p.x_stride;
  const auto* w = static_cast<const typename Dot::W*>(p.w.data) + column * p.w.stride;
  if (first_row == 0) {
    StreamTile<Dot, kRows, kCols, true>(x, p.x_stride, w, p.w.stride, p.w.cols, sums);
  } else {
    StreamTile<Dot, kRows, kCols, false>(x, p.x_stride, w, p.w.stride, p.w.cols, sums);
  }
  for (int r = 0; r < kRows; ++r) {
    if (p.bias != nullptr) {
      for (int c = 0; c < kCols; ++c) sums[r][c] += p.bias[column + c];
    }
    const int64_t offset = (first_row + r) * p.out.stride + column;
    switch (p.out.dtype) {
      case DType::kF32:
        StoreSums(static_cast<float*>(p.out.data) + offset, sums[r], kCols);
        break;
      case DType::kBF16:
        StoreSums(static_cast<BF16*>(p.out.data) + offset, sums[r], kCols);
        break;
      case DType::kF16:
        StoreSums(static_cast<F16*>(p.out.data) + offset, sums[r], kCols);
        break;
    }
  }
}

// Picks the instantiation for `rows` (1 … kMost).
template <typename Dot, int kCols, int kMost>
SKEIN_INLINE void StreamSomeRows(const StreamProduct& p, int first_row, int rows, int64_t column) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return StreamSomeRows<Dot, kCols, kMost - 1>(p, first_row, rows, column);
  }
  StreamRows<Dot, kMost, kCols>(p, first_row, column);
}

template <typename Dot, int kCols>
SKEIN_INLINE void StreamColumns(const StreamProduct& p, int64_t column) {
  // Shares of equal size: 8 rows are 4 + 4, not 6 + 2.
  const int shares = (p.rows + Simd::kStreamRows - 1) / Simd::kStreamRows;
  for (int share = 0; share < shares; ++share) {
    const int begin = p.rows * share / shares;
    const int end = p.rows * (share + 1) / shares;
    StreamSomeRows<Dot, kCols, Simd::kStreamRows>(p, begin, end - begin, column);
  }
}

template <typename Dot>
SKEIN_INLINE void StreamWith(const StreamProduct& p, int64_t begin, int64_t end) {
  int64_t column = begin;
  for (; column + kColumns <= end; column += kColumns) StreamColumns<Dot, kColumns>(p, column);
  for (; column < end; ++column) StreamColumns<Dot, 1>(p, column);
}

template <typename S>
void Stream(const StreamProduct& p, int64_t begin, int64_t end) {
  if constexpr (S::kHasPairs) {
    if (p.bf16_pairs) return StreamWith<Paired<S>>(p, begin, end);
  }
  if (p.w.dtype == DType::kF32) return StreamWith<Widened<float>>(p, begin, end);
  if (p.w.dtype == DType::kBF16) return StreamWith<Widened<BF16>>(p, begin, end);
  StreamWith<Widened<F16>>(p, begin, end);
}

}  // namespace
}  // namespace skein::engine
