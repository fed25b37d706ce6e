// StreamProduct over the Simd of the including file (include one simd_*.h before).
//
// A lone row of x that stays in L1: w is read from first to last as one stream, prefetched a page
// ahead into L2, which reaches the speed of a plain read (interleaving rows of w does not).
// Other rows: a tile is kStreamRows rows of x times kColumns rows of w, summed in registers along
// k; all tiles of the same rows of w follow each other, so w comes from memory once and x from
// cache. While a tile reads its rows of w it prefetches the next ones.
//
// Every element of out is one sum of registers along k, then one reduction of its lanes, in an
// order that depends on k and the column only: a row's result is the same bits in any batch.
// `begin` must be a multiple of kColumns for that.
#pragma once

#include "engine/base/f16.h"
#include "engine/ops/cpu/kernels/dot.h"
#include "engine/ops/cpu/kernels/kernels.h"

namespace skein::engine {
namespace {

constexpr int kColumns = 4;
// How far ahead a lone row is prefetched, and how much by one prefetch: asking for every second
// line leaves the other to the CPU's own prefetcher. Asking for all of them fills its queue of
// misses, and weights that do not begin on a line (few files' do) are then read a tenth slower.
constexpr int64_t kPrefetchAhead = 4096;
constexpr int64_t kPrefetchEvery = 128;
// A row of x this long is pushed out of L1 by the stream of w beside it.
constexpr int64_t kLongRowBytes = 16 << 10;

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
    if constexpr (kCols == kColumns) {
      Simd::ReduceFour(acc[r][0], acc[r][1], acc[r][2], acc[r][3], sums[r]);
    } else {
      for (int c = 0; c < kCols; ++c) sums[r][c] = Simd::ReduceAdd(acc[r][c]);
    }
  }
}

// The lanes of x · w for one row of each, summed in the order of StreamTile.
template <typename Dot>
SKEIN_INLINE Simd::V StreamOne(const typename Dot::X* x, const typename Dot::W* w, int64_t k) {
  constexpr int kSteps = 4;
  constexpr int64_t kStepBytes = Dot::kStep * sizeof(typename Dot::W);
  Simd::V sum = Simd::Zero();
  int64_t i = 0;
  for (; i + kSteps * Dot::kStep <= k; i += kSteps * Dot::kStep) {
    for (int s = 0; s < kSteps; ++s) {
      const int64_t at = i + s * Dot::kStep;
      if (s * kStepBytes % kPrefetchEvery == 0) {
        __builtin_prefetch(reinterpret_cast<const char*>(w + at) + kPrefetchAhead, 0, 2);
      }
      sum = Dot::Sum(sum, Dot::Load(x + at), Dot::Load(w + at));
    }
  }
  for (; i + Dot::kStep <= k; i += Dot::kStep) {
    sum = Dot::Sum(sum, Dot::Load(x + i), Dot::Load(w + i));
  }
  if (i < k) {
    const int rest = static_cast<int>(k - i);
    sum = Dot::Sum(sum, Dot::LoadFirst(x + i, rest), Dot::LoadFirst(w + i, rest));
  }
  return sum;
}

// Adds the bias and writes `count` columns of a row of out.
SKEIN_INLINE void WriteSums(const StreamProduct& p, int row, int64_t column,
                            float (&sums)[kColumns], int count) {
  if (p.bias != nullptr) {
    for (int c = 0; c < count; ++c) sums[c] += p.bias[column + c];
  }
  const int64_t offset = row * p.out.stride + column;
  switch (p.out.dtype) {
    case DType::kF32:
      // Not by a register: a load wider than the stores before it waits for them.
      if (count == kColumns) {
        __builtin_memcpy(static_cast<float*>(p.out.data) + offset, sums, sizeof sums);
        return;
      }
      return StoreSums(static_cast<float*>(p.out.data) + offset, sums, count);
    case DType::kBF16:
      return StoreSums(static_cast<BF16*>(p.out.data) + offset, sums, count);
    case DType::kF16:
      return StoreSums(static_cast<F16*>(p.out.data) + offset, sums, count);
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
  for (int r = 0; r < kRows; ++r) WriteSums(p, first_row + r, column, sums[r], kCols);
}

// The whole product for one row of x.
template <typename Dot>
SKEIN_INLINE void StreamOneRow(const StreamProduct& p, int64_t begin, int64_t end) {
  const auto* x = static_cast<const typename Dot::X*>(p.x);
  const auto* w = static_cast<const typename Dot::W*>(p.w.data);
  const auto lanes = [&](int64_t column) {
    return StreamOne<Dot>(x, w + column * p.w.stride, p.w.cols);
  };
  int64_t column = begin;
  for (; column + kColumns <= end; column += kColumns) {
    const Simd::V first = lanes(column), second = lanes(column + 1);
    const Simd::V third = lanes(column + 2), fourth = lanes(column + 3);
    float sums[kColumns];
    Simd::ReduceFour(first, second, third, fourth, sums);
    WriteSums(p, 0, column, sums, kColumns);
  }
  for (; column < end; ++column) {
    float sums[kColumns] = {Simd::ReduceAdd(lanes(column))};
    WriteSums(p, 0, column, sums, 1);
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
  // Where a step takes less of w, the latency of the one sum, not memory, would set the pace. Steps
  // of 32 bytes lost a fifth of decode on an Intel Xeon (bf16 by AVX-512, f32 by AVX2).
  if constexpr (Dot::kStep * sizeof(typename Dot::W) >= 64) {
    const bool long_row = p.w.cols * static_cast<int64_t>(sizeof(typename Dot::X)) >= kLongRowBytes;
    if (p.rows == 1 && !long_row) return StreamOneRow<Dot>(p, begin, end);
  }
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
