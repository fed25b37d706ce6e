// BlockProduct over the Simd of the including file (include one simd_*.h and stream.h before).
//
// A part of k at a time: the block's rows of that part (packed in tiles, some hundred KiB) come
// from L2 once for every kBlockPanel columns, which are copied end to end, widened and padded with
// zeros, into L1. A tile's registers are summed along k as in stream.h, and so are its parts: sums
// of parts wait for their partner in up to three buffers of the block's rows.
#pragma once

#include "engine/ops/cpu/kernels/lanes.h"
#include "engine/ops/cpu/kernels/stream.h"

namespace skein::engine {
namespace {

typedef float FourSums __attribute__((vector_size(16)));
static_assert(kBlockPanel == kColumns && kBlockRows % Simd::kStreamRows == 0);

// How the packed operands are multiplied: pairs as they are, everything else as f32.
using BlockFloats = Widened<float>;

// The first element of a tile's part.
SKEIN_INLINE int64_t PackedOffset(const ProductCuts& cuts, int rows, int part, int tile) {
  int64_t before = 0;
  for (int i = 0; i < part; ++i) before += PaddedPart(cuts, i);
  return before * rows + tile * Simd::kStreamRows * PaddedPart(cuts, part);
}

// Element i of row r of `count` rows goes to [i / kStep][r][i % kStep]; zeros behind k.
template <typename Dot, typename From>
SKEIN_INLINE void PackPart(const From* from, int64_t stride, int count, int64_t k, int64_t padded,
                           typename Dot::X* to) {
  constexpr bool kAsTheyAre = sizeof(typename Dot::X) == sizeof(From);
  for (int64_t i = 0; i < padded; i += Dot::kStep) {
    const int64_t left = k - i;
    for (int r = 0; r < count; ++r, to += Dot::kStep) {
      const From* row = from + r * stride + i;
      if (left >= Dot::kStep) {
        if constexpr (kAsTheyAre) {
          __builtin_memcpy(to, row, sizeof(From) * Dot::kStep);
        } else {
          Simd::Store(to, Simd::Load(row));
        }
      } else if (left <= 0) {
        for (int64_t j = 0; j < Dot::kStep; ++j) to[j] = typename Dot::X{};
      } else {
        typename Dot::X lanes[Dot::kStep] = {};
        for (int64_t j = 0; j < left; ++j) {
          if constexpr (kAsTheyAre) {
            lanes[j] = row[j];
          } else {
            Simd::StoreFirst(lanes + j, Simd::LoadFirst(row + j, 1), 1);
          }
        }
        __builtin_memcpy(to, lanes, sizeof lanes);
      }
    }
  }
}

template <typename Dot>
void PackTileWith(const StreamProduct& p, int tile, std::byte* to) {
  using X = typename Dot::X;
  const int first = tile * Simd::kStreamRows;
  const int count = p.rows - first < Simd::kStreamRows ? p.rows - first : Simd::kStreamRows;
  for (int part = 0; part < p.cuts.parts; ++part) {
    PackPart<Dot>(static_cast<const X*>(p.x) + first * p.x_stride + p.cuts.at[part], p.x_stride,
                  count, p.cuts.at[part + 1] - p.cuts.at[part], PaddedPart(p.cuts, part),
                  reinterpret_cast<X*>(to) + PackedOffset(p.cuts, p.rows, part, tile));
  }
}

// sums[r] = (or +=) the products of kRows packed rows and a panel.
template <typename Dot, int kRows>
void MultiplyPackedTile(const typename Dot::X* x, const typename Dot::X* w, int64_t steps, bool add,
                        float* sums) {
  Simd::V acc[kRows][kColumns];
  for (auto& row : acc) {
    for (auto& sum : row) sum = Simd::Zero();
  }
  for (int64_t s = 0; s < steps; ++s) {
    typename Dot::Register weights[kColumns];
    for (int c = 0; c < kColumns; ++c) weights[c] = Dot::Load(w + (s * kColumns + c) * Dot::kStep);
    for (int r = 0; r < kRows; ++r) {
      const typename Dot::Register activation = Dot::Load(x + (s * kRows + r) * Dot::kStep);
      for (int c = 0; c < kColumns; ++c) acc[r][c] = Dot::Sum(acc[r][c], activation, weights[c]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    FourSums now, before;
    Reduce<kColumns>(acc[r], reinterpret_cast<float*>(&now));
    float* at = sums + r * kBlockColumns;
    if (add) {
      __builtin_memcpy(&before, at, sizeof before);
      now = before + now;
    }
    __builtin_memcpy(at, &now, sizeof now);
  }
}

template <typename Dot, int kMost>
SKEIN_INLINE void MultiplySomeRows(int rows, const typename Dot::X* x, const typename Dot::X* w,
                                   int64_t steps, bool add, float* sums) {
  if constexpr (kMost > 1) {
    if (rows < kMost) return MultiplySomeRows<Dot, kMost - 1>(rows, x, w, steps, add, sums);
  }
  MultiplyPackedTile<Dot, kMost>(x, w, steps, add, sums);
}

// What a call of multiply_block works with.
template <typename Dot>
struct BlockWork {
  const StreamProduct& p;
  const typename Dot::X* packed;
  float* sums;             // [3][kBlockRows][kBlockColumns]
  typename Dot::X* panel;  // of one part
  float* Sums(int level) const { return sums + level * kBlockRows * kBlockColumns; }
};

// One part of columns [column, column + columns) into, or on top of, a level's sums.
template <typename Dot, typename W>
void MultiplyPart(const BlockWork<Dot>& work, int part, int64_t column, int columns, int level,
                  bool add) {
  const StreamProduct& p = work.p;
  const int64_t at = p.cuts.at[part], k = p.cuts.at[part + 1] - at;
  const int64_t padded = PaddedPart(p.cuts, part);
  const int64_t steps = (k + Dot::kStep - 1) / Dot::kStep;
  for (int c = 0; c < columns; c += kColumns) {
    const int count = columns - c < kColumns ? columns - c : kColumns;
    const W* w = static_cast<const W*>(p.w.data) + (column + c) * p.w.stride + at;
    if (count == kColumns) {
      for (int64_t i = 0; i < k; i += 64 / static_cast<int64_t>(sizeof(W))) {
        for (int j = 0; j < kColumns; ++j) {
          __builtin_prefetch(w + (kColumns + j) * p.w.stride + i, 0, 2);
        }
      }
      PackPart<Dot>(w, p.w.stride, kColumns, k, padded, work.panel);
    } else {
      for (int64_t i = 0; i < padded * kColumns; ++i) work.panel[i] = typename Dot::X{};
      typename Dot::X* row = work.panel + padded * kColumns;  // room of another panel
      for (int j = 0; j < count; ++j) {
        PackPart<Dot>(w + j * p.w.stride, 0, 1, k, padded, row);
        for (int64_t s = 0; s < steps; ++s) {
          __builtin_memcpy(work.panel + (s * kColumns + j) * Dot::kStep, row + s * Dot::kStep,
                           sizeof(typename Dot::X) * Dot::kStep);
        }
      }
    }
    for (int first = 0, tile = 0; first < p.rows; first += Simd::kStreamRows, ++tile) {
      MultiplySomeRows<Dot, Simd::kStreamRows>(
          p.rows - first < Simd::kStreamRows ? p.rows - first : Simd::kStreamRows,
          work.packed + PackedOffset(p.cuts, p.rows, part, tile), work.panel, steps, add,
          work.Sums(level) + first * kBlockColumns + c);
    }
  }
}

SKEIN_INLINE void AddBlock(float* to, const float* from, int rows, int columns) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; c += Simd::kLanes) {
      const int at = r * kBlockColumns + c;
      Simd::Store(to + at, Simd::Add(Simd::Load(to + at), Simd::Load(from + at)));
    }
  }
}

SKEIN_INLINE void WriteBlock(const StreamProduct& p, const float* sums, int64_t column,
                             int columns) {
  WithType(p.out.data, p.out.dtype, [&](auto* out) {
    for (int r = 0; r < p.rows; ++r) {
      auto* to = out + r * p.out.stride + column;
      const float* from = sums + r * kBlockColumns;
      ForLanes(
          columns, [&](int64_t i) { Simd::Store(to + i, Simd::Load(from + i)); },
          [&](int64_t i, int n) { Simd::StoreFirst(to + i, Simd::LoadFirst(from + i, n), n); });
    }
  });
}

// A part whose number is even waits on a level of its own; an odd one is added to the one before
// it, and what that completes to the one before that.
template <typename Dot, typename W>
void MultiplyBlockOf(const BlockProduct& block, int64_t begin, int64_t end, std::byte* scratch) {
  const StreamProduct& p = block.product;
  auto* sums = reinterpret_cast<float*>(scratch);
  const BlockWork<Dot> work{
      p, reinterpret_cast<const typename Dot::X*>(block.packed), sums,
      reinterpret_cast<typename Dot::X*>(sums + 3 * kBlockRows * kBlockColumns)};
  for (int64_t column = begin; column < end; column += kBlockColumns) {
    const int columns =
        static_cast<int>(end - column < kBlockColumns ? end - column : int64_t{kBlockColumns});
    for (int part = 0; part < p.cuts.parts; ++part) {
      const int waiting = __builtin_popcount(static_cast<unsigned>(part));
      const bool add = part % 2 == 1;
      int level = add ? waiting - 1 : waiting;
      MultiplyPart<Dot, W>(work, part, column, columns, level, add);
      if (part == 0 && p.bias != nullptr) {
        for (int r = 0; r < p.rows; ++r) {
          for (int c = 0; c < columns; ++c) sums[r * kBlockColumns + c] += p.bias[column + c];
        }
      }
      for (int rest = part / 2; add && rest % 2 == 1; rest /= 2, --level) {
        AddBlock(work.Sums(level - 1), work.Sums(level), p.rows, columns);
      }
    }
    WriteBlock(p, sums, column, columns);
  }
}

template <typename S>
void PackTileOf(const StreamProduct& p, int tile, std::byte* to) {
  if constexpr (S::kHasPairs) {
    if (p.bf16_pairs) return PackTileWith<Paired<S>>(p, tile, to);
  }
  PackTileWith<BlockFloats>(p, tile, to);
}

template <typename S>
void MultiplyBlock(const BlockProduct& block, int64_t begin, int64_t end, std::byte* scratch) {
  const DType dtype = block.product.w.dtype;
  if constexpr (S::kHasPairs) {
    if (block.product.bf16_pairs) {
      return MultiplyBlockOf<Paired<S>, BF16>(block, begin, end, scratch);
    }
  }
  if (dtype == DType::kF32) return MultiplyBlockOf<BlockFloats, float>(block, begin, end, scratch);
  if (dtype == DType::kBF16) return MultiplyBlockOf<BlockFloats, BF16>(block, begin, end, scratch);
  MultiplyBlockOf<BlockFloats, F16>(block, begin, end, scratch);
}

}  // namespace
}  // namespace skein::engine
