// The steps of a tile of flash attention, each over what a warp holds in registers: loads through
// the block table, scores, online softmax, weighted values. flash_kernel.h puts them in order. For
// .cu files only.
//
// Shared memory. Keys and values of a tile are rows of kDim 16-bit elements in pieces of 16 bytes;
// Swizzle permutes the pieces of a row so that the eight rows an 8x8 matrix of ldmatrix is read
// from lie in eight different groups of four banks, and so do the pieces that cp.async writes.
// Tiles are named by their byte offset in dynamic shared memory. Offsets are multiples of a row's
// bytes, so that the piece 2 k further in any row is at the offset xor 32 k: one operation where it
// is used, and no table of offsets in registers.
//
// Registers, as mma.m16n8k16 lays them out (simt_cuda.h): lane l holds, of each 16 rows, rows l / 4
// and l / 4 + 8 (its "halves"), and of each 8 columns the columns 2 (l % 4) and the next.
#pragma once

#include "engine/cuda/attention/attention_plan.h"
#include "engine/cuda/kernels/paged.h"
#include "engine/cuda/simt/simt.h"

namespace skein::engine {

// What a kernel is compiled for. Warps stand in kWarpsRows x kWarpsKeys: each takes kRowTiles times
// 16 of the tile's rows, and its share of the tile's keys.
template <typename T_, AttentionKind kKind_, int kDim_, int kWarpsRows_, int kWarpsKeys_,
          int kRowTiles_, int kStages_, int kBlocksAProcessor_>
struct FlashShape {
  using T = T_;
  static constexpr AttentionKind kKind = kKind_;
  static constexpr int kDim = kDim_;  // head_dim, rounded up
  static constexpr int kWarpsRows = kWarpsRows_;
  static constexpr int kWarpsKeys = kWarpsKeys_;
  static constexpr int kRowTiles = kRowTiles_;
  static constexpr int kStages = kStages_;  // tiles of keys or of values in shared memory
  static constexpr int kBlocksAProcessor = kBlocksAProcessor_;

  static constexpr int kThreads = 32 * kWarpsRows * kWarpsKeys;
  static constexpr int kRows = 16 * kWarpsRows * kRowTiles;
  static constexpr int kKeys = kAttentionTileKeys;
  static constexpr int kKeysAWarp = kKeys / kWarpsKeys;
  static constexpr int kKeyTiles = kKeysAWarp / 8;  // columns of scores, 8 each
  static constexpr int kDimTiles = kDim / 8;        // columns of the output, 8 each
  static constexpr int kPieces = kDim / 8;          // of 16 bytes in a row
  static constexpr int kRowBytes = kDim * 2;
  static constexpr int kTileBytes = kKeys * kRowBytes;
  static constexpr int kQueryBytes = kRows * kRowBytes;
  // Rows of the pool where keys lie, of kSlots tiles in turn.
  static constexpr int kSlots = 4;
  static constexpr int kSharedBytes = kQueryBytes + kStages * kTileBytes + kSlots * kKeys * 4;
  static constexpr bool kQueriesInRegisters = kKind == AttentionKind::kNarrow && kDim <= 128;

  static_assert(kRows == kAttentionRows[static_cast<int>(kKind)]);
  static_assert(kWarpsRows == 1 || kWarpsKeys == 1);
  static_assert(kKeysAWarp % 16 == 0 && kThreads % kPieces == 0 && kThreads >= kKeys);
};

// Byte offset of 16-byte piece `piece` of row `row`.
template <int kPieces>
__device__ __forceinline__ int Swizzle(int row, int piece) {
  if constexpr (kPieces >= 8) {
    return (row * kPieces + (piece ^ (row & 7))) * 16;
  } else {  // 4 pieces: two rows in the 128 bytes of all banks
    static_assert(kPieces == 4);
    return (row * kPieces + (piece ^ (row >> 1 & 3))) * 16;
  }
}

// Consecutive keys of one KV head, through the block table. "Rows" are rows of head_dim elements of
// the pool.
struct KeyPlaces {
  const int32_t* table;
  int block_tokens;
  int block_rows;  // from a block to the next
  int head_row;    // of the head's first key in a block
  int key_end;

  // The row of key `key`; -1 from key_end on.
  __device__ __forceinline__ int RowOf(int key) const {
    if (key >= key_end) return -1;
    const int index =
        static_cast<int>(static_cast<unsigned>(key) / static_cast<unsigned>(block_tokens));
    return table[index] * block_rows + head_row + key - index * block_tokens;
  }
};

// Starts the copy of a tile of keys (or values): shared row i is pool row rows[i] + shift; zeros
// where that is -1, and beyond head_dim.
template <typename S>
__device__ __forceinline__ void StartTile(unsigned char* tile, const void* pool, const int* rows,
                                          int shift, int head_dim) {
  constexpr int kStep = S::kThreads / S::kPieces;
  const int thread = simt::Opaque(static_cast<int>(threadIdx.x));  // as with offsets, see above
  const int piece = thread % S::kPieces, first = thread / S::kPieces;
  const auto* base = static_cast<const unsigned char*>(pool) + piece * 16;
  const bool inside = piece * 8 < head_dim;
#pragma unroll
  for (int i = 0; i < S::kKeys / kStep; ++i) {
    const int row = first + i * kStep;
    const int from = rows[row];
    const bool present = inside && from >= 0;
    const int64_t offset = present ? static_cast<int64_t>(from + shift) * (head_dim * 2) : 0;
    simt::CpAsync16(tile + Swizzle<S::kPieces>(row, piece), present ? base + offset : pool,
                    present ? 16 : 0);
  }
}

// Fragments of a warp's queries, which begin at offset `queries`: read anew for each tile of keys,
// or kept.
template <typename S, bool kInRegisters = S::kQueriesInRegisters>
struct Queries {
  int offset;  // of what this lane reads first
  __device__ __forceinline__ explicit Queries(int queries)
      : offset(queries + Swizzle<S::kPieces>(static_cast<int>(threadIdx.x) % 16,
                                             static_cast<int>(threadIdx.x) % 32 / 16)) {}
  __device__ __forceinline__ void Fragments(uint32_t (&a)[S::kRowTiles][4], int k) const {
#pragma unroll
    for (int m = 0; m < S::kRowTiles; ++m) {
      simt::LdMatrix4(a[m], simt::DynamicShared() + (offset ^ 32 * k) + 16 * m * S::kRowBytes);
    }
  }
};
template <typename S>
struct Queries<S, true> {
  uint32_t all[S::kDim / 16][1][4];
  __device__ __forceinline__ explicit Queries(int queries) {
    const Queries<S, false> shared(queries);
#pragma unroll
    for (int k = 0; k < S::kDim / 16; ++k) shared.Fragments(all[k], k);
  }
  __device__ __forceinline__ void Fragments(uint32_t (&a)[1][4], int k) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[0][i] = all[k][0][i];
  }
};

// scores = queries · keysᵀ for the warp's keys, which begin at row first_key of the tile at `keys`.
template <typename S>
__device__ __forceinline__ void Scores(float (&scores)[S::kRowTiles][S::kKeyTiles][4],
                                       const Queries<S>& queries, int keys, int first_key) {
  const int lane = simt::Opaque(static_cast<int>(threadIdx.x)) % 32;
  const int first = keys + Swizzle<S::kPieces>(first_key + lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll
  for (int m = 0; m < S::kRowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < S::kKeyTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores[m][n][i] = 0.0f;
    }
  }
#pragma unroll
  for (int k = 0; k < S::kDim / 16; ++k) {
    uint32_t a[S::kRowTiles][4];
    queries.Fragments(a, k);
#pragma unroll
    for (int n = 0; n < S::kKeyTiles; n += 2) {
      uint32_t b[4];
      simt::LdMatrix4(b, simt::DynamicShared() + (first ^ 32 * k) + 8 * n * S::kRowBytes);
      const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
      for (int m = 0; m < S::kRowTiles; ++m) {
        simt::Mma16816<typename S::T>(scores[m][n], a[m], low);
        simt::Mma16816<typename S::T>(scores[m][n + 1], a[m], high);
      }
    }
  }
}

// A lane's rows so far: two for each of the warp's row tiles.
template <typename S>
struct RowState {
  float largest[S::kRowTiles][2];  // score, as it is before the scale
  float total[S::kRowTiles][2];    // of this lane's columns
};

// Scores of keys that a row does not see become -inf. `key` is the warp's first, limit_of(row) says
// below which the warp's row `row` sees keys.
template <typename S, typename LimitOf>
__device__ __forceinline__ void Mask(float (&scores)[S::kRowTiles][S::kKeyTiles][4], int key,
                                     LimitOf limit_of) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float none = __uint_as_float(0xff800000u);
#pragma unroll
  for (int m = 0; m < S::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int limit = limit_of(16 * m + 8 * half + lane / 4) - key - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < S::kKeyTiles; ++n) {
        if (8 * n >= limit) scores[m][n][2 * half] = none;
        if (8 * n + 1 >= limit) scores[m][n][2 * half + 1] = none;
      }
    }
  }
}

__device__ __forceinline__ float QuadMax(float value) {
  value = fmaxf(value, __shfl_xor_sync(simt::kAllLanes, value, 1));
  return fmaxf(value, __shfl_xor_sync(simt::kAllLanes, value, 2));
}
__device__ __forceinline__ float QuadSum(float value) {
  value += __shfl_xor_sync(simt::kAllLanes, value, 1);
  return value + __shfl_xor_sync(simt::kAllLanes, value, 2);
}

// Online softmax (Milakov, Gimelshein 2018, arXiv 1805.02867) in base 2, of 16 rows: scores become
// weights relative to the largest so far, and what was summed before is to shrink to the new
// largest by `shrink`. Returns whether any of this lane's rows has a new one.
// scale_log2 = scale · log2(e).
template <int kKeyTiles>
__device__ __forceinline__ bool Weigh(float (&scores)[kKeyTiles][4], float scale_log2,
                                      float (&largest)[2], float (&totals)[2], float (&shrink)[2]) {
  const float none = __uint_as_float(0xff800000u);
  bool grown = false;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float before = largest[half];
    float now = before;
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
      now = fmaxf(now, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
    }
    now = QuadMax(now);
    grown |= now > before;
    // A row that saw no key yet has -inf; -inf - 0 stays what it is, where -inf - -inf is NaN.
    const float shift = now == none ? 0.0f : now * scale_log2;
    shrink[half] = simt::Exp2(before * scale_log2 - shift);
    float total = totals[half] * shrink[half];
#pragma unroll
    for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        const float weight = simt::Exp2(scores[n][i] * scale_log2 - shift);
        total += weight;
        scores[n][i] = weight;
      }
    }
    totals[half] = total;
    largest[half] = now;
  }
  return grown;
}

// Weights as the left operand of the product with the values.
template <typename T, int kKeyTiles>
__device__ __forceinline__ void Pack(const float (&weights)[kKeyTiles][4],
                                     uint32_t (&packed)[kKeyTiles / 2][4]) {
#pragma unroll
  for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      packed[n / 2][n % 2 * 2 + half] =
          simt::Narrow2<T>(weights[n][2 * half], weights[n][2 * half + 1]);
    }
  }
}

// Most tiles do not raise any row's largest, and a factor of 1 changes nothing.
template <int kDimTiles>
__device__ __forceinline__ void Shrink(bool grown, const float (&shrink)[2],
                                       float (&sums)[kDimTiles][4]) {
  if (!__any_sync(simt::kAllLanes, grown)) return;
#pragma unroll
  for (int d = 0; d < kDimTiles; ++d) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[d][i] *= shrink[i / 2];
  }
}

template <typename S>
__device__ __forceinline__ void SoftMax(float (&scores)[S::kRowTiles][S::kKeyTiles][4],
                                        float scale_log2, RowState<S>* state,
                                        float (&sums)[S::kRowTiles][S::kDimTiles][4],
                                        uint32_t (&weights)[S::kRowTiles][S::kKeyTiles / 2][4]) {
#pragma unroll
  for (int m = 0; m < S::kRowTiles; ++m) {
    float shrink[2];
    const bool grown = Weigh(scores[m], scale_log2, state->largest[m], state->total[m], shrink);
    Pack<typename S::T>(scores[m], weights[m]);
    Shrink(grown, shrink, sums[m]);
  }
}

// sums += weights · values, of the warp's keys, which begin at row first_key of the tile at
// `values`.
template <typename S>
__device__ __forceinline__ void AddValues(
    float (&sums)[S::kRowTiles][S::kDimTiles][4],
    const uint32_t (&weights)[S::kRowTiles][S::kKeyTiles / 2][4], int values, int first_key) {
  const int lane = simt::Opaque(static_cast<int>(threadIdx.x)) % 32;
  const int first = values + Swizzle<S::kPieces>(first_key + lane % 16, lane / 16);
#pragma unroll
  for (int j = 0; j < S::kKeyTiles / 2; ++j) {
#pragma unroll
    for (int d = 0; d < S::kDimTiles; d += 2) {
      uint32_t b[4];
      simt::LdMatrix4<true>(b, simt::DynamicShared() + (first ^ 16 * d) + 16 * j * S::kRowBytes);
      const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
      for (int m = 0; m < S::kRowTiles; ++m) {
        simt::Mma16816<typename S::T>(sums[m][d], weights[m][j], low);
        simt::Mma16816<typename S::T>(sums[m][d + 1], weights[m][j], high);
      }
    }
  }
}

}  // namespace skein::engine
