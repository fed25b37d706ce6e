// The attention kernel: FlashAttention-2 over block tables. For .cu files only, which instantiate
// it for a head_dim.
//
// A block takes items in turn. Of an item it keeps the queries, and walks the keys a tile at a
// time. Tiles of keys and of values go through one ring of kStages places in shared memory (keys 0,
// values 0, keys 1, …): at each step the block waits for the oldest, starts the copy into the place
// that the step before has left, and computes while kStages - 1 copies are on their way. Where keys
// lie in the pool is looked up two or more tiles ahead, once for keys and values, so that no copy
// waits for the block table.
#pragma once

#include "engine/cuda/attention/flash_call.h"
#include "engine/cuda/attention/flash_rows.h"
#include "engine/cuda/attention/flash_tile.h"

namespace skein::engine {

// Queries of the item's rows.
template <typename S>
__device__ __forceinline__ void LoadQueries(const FlashArguments& a, const HeadRows& where,
                                            int row_begin, unsigned char* queries) {
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < S::kRows * S::kPieces; i += S::kThreads) {
    const int row = i / S::kPieces, piece = i % S::kPieces;
    simt::Store(queries + Swizzle<S::kPieces>(row, piece),
                QueryPiece<typename S::T>(a, where, row_begin + row, piece));
  }
}

// Results of warps that each have a share of the keys of the same rows: joined through shared
// memory, which nothing else is in now.
template <typename S>
__device__ __forceinline__ void JoinWarps(const Target<S>& target, const RowState<S>& state,
                                          const float (&sums)[1][S::kDimTiles][4],
                                          unsigned char* ring, unsigned char* slots) {
  static_assert(S::kWarpsRows == 1 && S::kRowTiles == 1);
  static_assert(S::kWarpsKeys * 16 * S::kDim * 4 <= S::kStages * S::kTileBytes);
  static_assert(S::kWarpsKeys * 16 * 2 * 4 <= S::kSlots * S::kKeys * 4);
  auto* shares = reinterpret_cast<float*>(ring);    // [warps][16][kDim]
  auto* largest = reinterpret_cast<float*>(slots);  // [warps][16]
  float* total = largest + S::kWarpsKeys * 16;      // [warps][16]
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp * 16 + 8 * half + lane / 4;
    const float sum = QuadSum(state.total[0][half]);
#pragma unroll
    for (int d = 0; d < S::kDimTiles; ++d) {
      simt::Store(shares + row * S::kDim + 8 * d + lane % 4 * 2,
                  make_float2(sums[0][d][2 * half], sums[0][d][2 * half + 1]));
    }
    if (lane % 4 == 0) {
      largest[row] = state.largest[0][half];
      total[row] = sum;
    }
  }
  __syncthreads();
  const float none = __uint_as_float(0xff800000u);
  const Matrix out = target.Out();
  constexpr int kFours = S::kDim / 4;
#pragma unroll 4
  for (int i = thread; i < 16 * kFours; i += S::kThreads) {
    const int row = i / kFours, dim = i % kFours * 4;
    if (!target.Has(row) || dim >= target.a.head_dim) continue;
    float most = none;
#pragma unroll
    for (int w = 0; w < S::kWarpsKeys; ++w) most = fmaxf(most, largest[w * 16 + row]);
    const float shift = most == none ? 0.0f : most * target.a.scale_log2;
    float sum = 0.0f;
    float4 value = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll
    for (int w = 0; w < S::kWarpsKeys; ++w) {
      const float share = simt::Exp2(largest[w * 16 + row] * target.a.scale_log2 - shift);
      const float4 part = simt::Load<float4>(shares + (w * 16 + row) * S::kDim + dim);
      sum += share * total[w * 16 + row];
      value.x += share * part.x;
      value.y += share * part.y;
      value.z += share * part.z;
      value.w += share * part.w;
    }
    const float inverse = sum > 0.0f ? 1.0f / sum : 0.0f;
    StoreFour(
        out, target.Begin(row) + dim,
        make_float4(value.x * inverse, value.y * inverse, value.z * inverse, value.w * inverse),
        target.aligned());
    if (dim == 0) target.SetLse(row, Lse2(most, sum, target.a.scale_log2));
  }
}

// `item` and `span` stay in global memory: what is needed only before or after the keys, or for few
// of them, is read there again and takes no registers meanwhile.
template <typename S>
__device__ __forceinline__ void AttendItem(const FlashArguments& a, const AttentionItem& item,
                                           const DeviceSpan& span, int kv_head) {
  constexpr int kAhead = S::kStages / 2 + 1;  // tiles whose keys are looked up before the first
  static_assert(kAhead < S::kSlots && kAhead * S::kKeys <= 2 * S::kThreads);
  unsigned char* queries = simt::DynamicShared();
  unsigned char* ring = queries + S::kQueryBytes;
  unsigned char* slots = ring + S::kStages * S::kTileBytes;
  auto* rows = reinterpret_cast<int*>(slots);  // [kSlots][kKeys]
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32;
  const int key_begin = item.key_begin;
  const auto row_of = [&](int key) {
    return KeyPlaces{a.tables + span.table_begin, span.block_tokens, a.pool_block_rows,
                     kv_head * span.block_tokens, item.key_end}
        .RowOf(key);
  };
  const int tiles = (item.key_end - key_begin + S::kKeys - 1) / S::kKeys;

  for (int i = thread; i < kAhead * S::kKeys; i += S::kThreads) {
    rows[i] = row_of(key_begin + i);
  }
  __syncthreads();
  // Tile s of the ring: keys of tile s / 2, or, where s is odd, its values.
  const auto start = [&](int s, int place) {
    if (s / 2 < tiles) {
      StartTile<S>(ring + place * S::kTileBytes, a.pool, rows + s / 2 % S::kSlots * S::kKeys,
                   s % 2 == 0 ? 0 : span.kv_heads * span.block_tokens, a.head_dim);
    }
    simt::CpAsyncCommit();
  };
#pragma unroll
  for (int s = 0; s < S::kStages - 1; ++s) start(s, s);
  LoadQueries<S>(a, HeadRows(span, a.heads, kv_head), item.row_begin, queries);
  __syncthreads();

  const int first_row = S::kWarpsRows == 1 ? 0 : warp * 16 * S::kRowTiles;
  const int first_key = S::kWarpsKeys == 1 ? 0 : warp * S::kKeysAWarp;
  Queries<S> own(first_row * S::kRowBytes);  // queries come first in shared memory
  RowState<S> state;
  float sums[S::kRowTiles][S::kDimTiles][4];
#pragma unroll
  for (int m = 0; m < S::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      state.largest[m][half] = __uint_as_float(0xff800000u);
      state.total[m][half] = 0.0f;
    }
#pragma unroll
    for (int d = 0; d < S::kDimTiles; ++d) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][d][i] = 0.0f;
    }
  }
  // Of the warp's rows, those past the span's last are computed as it is, and not stored.
  int seen_by_all, seen_by_any;
  {
    const int group = a.heads / span.kv_heads;
    const int row = item.row_begin + first_row;
    seen_by_all = LimitOf(span, group, row, item.key_end);
    seen_by_any = row < span.token_count * group
                      ? LimitOf(span, group, row + 16 * S::kRowTiles - 1, item.key_end)
                      : 0;
  }

  int taken = 0;  // the place of the tile that is computed with
  const auto next_tile = [&](int s) {
    simt::CpAsyncWait<S::kStages - 2>();
    __syncthreads();
    const int tile = S::kQueryBytes + taken * S::kTileBytes;
    start(s + S::kStages - 1, taken == 0 ? S::kStages - 1 : taken - 1);
    taken = taken + 1 == S::kStages ? 0 : taken + 1;
    return tile;
  };
  for (int i = 0; i < tiles; ++i) {
    const int key = key_begin + i * S::kKeys;
    const bool seen = key + first_key < seen_by_any;
    uint32_t weights[S::kRowTiles][S::kKeyTiles / 2][4];
    int tile = next_tile(2 * i);
    if (seen) {
      if constexpr (!S::kQueriesInRegisters) own.offset = simt::Opaque(own.offset);
      float scores[S::kRowTiles][S::kKeyTiles][4];
      Scores<S>(scores, own, tile, first_key);
      if (key + first_key + S::kKeysAWarp > seen_by_all) {
        const int group = a.heads / span.kv_heads;
        Mask<S>(scores, key + first_key, [&](int row) {
          return LimitOf(span, group, item.row_begin + first_row + row, item.key_end);
        });
      }
      SoftMax<S>(scores, a.scale_log2, &state, sums, weights);
    }
    tile = next_tile(2 * i + 1);
    const int looked_up = thread < S::kKeys ? row_of(key + kAhead * S::kKeys + thread) : -1;
    if (seen) AddValues<S>(sums, weights, tile, first_key);
    if (thread < S::kKeys) rows[(i + kAhead) % S::kSlots * S::kKeys + thread] = looked_up;
  }
  simt::CpAsyncWait<0>();

  const HeadRows where(span, a.heads, kv_head);
  const Target<S> target(a, where, item, kv_head);
  if constexpr (S::kWarpsKeys == 1) {
    StoreRows<S>(target, state, sums, first_row);
  } else {
    __syncthreads();
    JoinWarps<S>(target, state, sums, ring, slots);
  }
}

template <typename S>
__global__ void __launch_bounds__(S::kThreads, S::kBlocksAProcessor)
    FlashAttentionKernel(FlashArguments a) {
  const AttentionList& list =
      reinterpret_cast<const AttentionHeader*>(a.plan)->items[static_cast<int>(S::kKind)];
  const int kv_head = static_cast<int>(blockIdx.y);
  for (int i = static_cast<int>(blockIdx.x); i < list.count; i += static_cast<int>(gridDim.x)) {
    const AttentionItem& item = EntryOf<AttentionItem>(a.plan, list, i);
    const DeviceSpan& span = a.spans[item.span];
    if (kv_head < span.kv_heads) AttendItem<S>(a, item, span, kv_head);
    __syncthreads();
  }
}

template <typename S>
void LaunchShape(const FlashArguments& arguments, const AttentionGrid& grid, CudaStream stream) {
  const int items = grid.items[static_cast<int>(S::kKind)];
  if (items == 0) return;
  simt::Launch(FlashAttentionKernel<S>,
               dim3(static_cast<unsigned>(items), static_cast<unsigned>(grid.kv_heads)),
               S::kThreads, S::kSharedBytes, stream, arguments);
}

// Warps, row tiles, ring and blocks a multiprocessor of each kernel: README.md has the registers,
// shared memory and occupancy that come of them.
template <typename T, int kDim>
void LaunchKinds(const FlashArguments& arguments, const AttentionGrid& grid, CudaStream stream) {
  constexpr int kDecodeStages = kDim <= 128 ? 4 : 3;
  constexpr int kDecodeBlocks = kDim <= 64 ? 4 : kDim <= 128 ? 3 : 2;
  LaunchShape<FlashShape<T, AttentionKind::kDecode, kDim, 1, 4, 1, kDecodeStages, kDecodeBlocks>>(
      arguments, grid, stream);
  constexpr int kNarrowStages = kDim <= 128 ? 3 : 2;
  constexpr int kNarrowBlocks = kDim <= 64 ? 3 : 2;
  LaunchShape<FlashShape<T, AttentionKind::kNarrow, kDim, 4, 1, 1, kNarrowStages, kNarrowBlocks>>(
      arguments, grid, stream);
  if constexpr (kDim <= kWideHeadDimMax) {
    LaunchShape<FlashShape<T, AttentionKind::kWide, kDim, 4, 1, 2, 3, 2>>(arguments, grid, stream);
  }
}

template <int kDim>
void LaunchFlash(DType dtype, const FlashArguments& arguments, const AttentionGrid& grid,
                 CudaStream stream) {
  if (dtype == DType::kBF16) {
    LaunchKinds<BF16, kDim>(arguments, grid, stream);
  } else {
    LaunchKinds<simt::Half, kDim>(arguments, grid, stream);
  }
}

}  // namespace skein::engine
