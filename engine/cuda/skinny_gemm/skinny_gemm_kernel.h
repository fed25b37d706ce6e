// The skinny GEMM kernel: few rows times a matrix (skinny_gemm_plan.h says how they are cut). For
// .cu files only.
//
// Weights are the 16-row operand of mma.m16n8k16, rows of x the 8 columns of the other. At each
// step the block waits for the oldest place of the ring, starts the copy into the place that the
// step before has left, and multiplies while stages - 1 copies are on their way. Up to 128 rows
// these are 48 or 64 KiB of weights of a block, and Hopper takes two blocks of most shapes, where
// HBM3e at 4.8 TB/s and 0.8 us of latency wants 29 KiB of each of 132 multiprocessors. Above that
// tensor cores are the limit, and half as many do. (engine/cuda/README.md has the figures.)
#pragma once

#include "engine/cuda/simt/simt.h"
#include "engine/cuda/skinny_gemm/skinny_gemm_call.h"

namespace skein::engine {

template <typename T_, int kIndex>
struct SkinnyGemmConfig {
  using T = T_;
  static constexpr SkinnyGemmShape kShape = kSkinnyGemmShapes[kIndex];
  static constexpr bool kWide = kIndex >= kSkinnyGemmFirstWide;
  static constexpr int kRows = kShape.rows;
  static constexpr int kColumns = kShape.columns;
  static constexpr int kParts = kShape.parts;  // that a block sums at once
  static constexpr int kWarpsRows = kShape.warps_rows;
  static constexpr int kWarpsColumns = kSkinnyGemmThreads / 32 / (kWarpsRows * kParts);
  static constexpr int kColumnTiles = kColumns / (16 * kWarpsColumns);  // a warp
  static constexpr int kRowTiles = kRows / (8 * kWarpsRows);            // a warp
  static constexpr int kStages = kShape.stages;
  static constexpr int kStageBytes = kShape.stage_bytes();
  static constexpr int kLine = kSkinnyGemmStep * 2;  // bytes of a row in a stage
  static constexpr int kXBegin = kParts * kColumns * kLine;

  static_assert(kColumnTiles * 16 * kWarpsColumns == kColumns);
  static_assert(kRowTiles * 8 * kWarpsRows == kRows);
  static_assert(kParts == 1 || (kColumnTiles == 1 && kRowTiles == 1 && kWarpsRows == 1));
  static_assert(kRowTiles == 1 || kRowTiles % 2 == 0);
  static_assert(kStages >= 2);
};

__device__ __forceinline__ int StepsOf(const SkinnyGemmParts& parts, int part) {
  return min(parts.part_steps, parts.steps - part * parts.part_steps);
}

// The row of the weights, and entry of the bias, that output column `column` is made of.
__device__ __forceinline__ int RowOfColumn(const SkinnyGemmArguments& a, int column) {
  int row = column;
  if (column >= a.band_at[0]) row += a.band_skips[0];
  if (column >= a.band_at[1]) row += a.band_skips[1];
  return row;
}

// What an item is.
template <typename S>
struct SkinnyGemmItem {
  int tile = 0, part = 0, steps = 0;
  __device__ __forceinline__ SkinnyGemmItem(const SkinnyGemmArguments& a, int item) {
    if (item >= a.items) return;
    const int parts = S::kWide ? a.parts.parts : 1;
    tile = item / parts;
    part = item % parts;
    steps = S::kWide ? StepsOf(a.parts, part) : a.parts.part_steps;
  }
};

// Eight elements that are not where cp.async could take them.
template <typename T>
__device__ __forceinline__ void MovePiece(unsigned char* to, const T* from, int bytes) {
  uint32_t pairs[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t low = 4 * i < bytes ? from[2 * i].bits : 0;
    const uint32_t high = 4 * i + 2 < bytes ? from[2 * i + 1].bits : 0;
    pairs[i] = low | (high << 16);
  }
  simt::Store(to, make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]));
}

// Starts the copies of step after step of this block's items, each into the next place of the ring.
template <typename S>
class SkinnyGemmLoader {
 public:
  using T = typename S::T;
  __device__ __forceinline__ SkinnyGemmLoader(const SkinnyGemmArguments& a, unsigned char* ring)
      : a_(a), ring_(ring), index_(static_cast<int>(blockIdx.x)), item_(a, index_) {}

  // An empty group behind the last step.
  __device__ __forceinline__ void Next() {
    if (index_ < a_.items) {
      unsigned char* place = ring_ + place_ * S::kStageBytes;
      const int k = (item_.part * a_.parts.part_steps + step_) * kSkinnyGemmStep;
      Copy<S::kColumns>(place, static_cast<const T*>(a_.w), a_.w_stride, item_.tile * S::kColumns,
                        a_.n, k, a_.w_aligned,
                        [this](int column) { return RowOfColumn(a_, column); });
      Copy<S::kRows>(place + S::kXBegin, static_cast<const T*>(a_.x), a_.x_stride, 0, a_.rows, k,
                     a_.x_aligned, [](int row) { return row; });
      if (++step_ == item_.steps) {
        index_ += static_cast<int>(gridDim.x);
        item_ = SkinnyGemmItem<S>(a_, index_);
        step_ = 0;
      }
    }
    simt::CpAsyncCommit();
    place_ = place_ + 1 == S::kStages ? 0 : place_ + 1;
  }

 private:
  // Columns [k, k + kSkinnyGemmStep) of rows first … first + kLines of a matrix, where each lies
  // as `row_of` says, and as many of each further part; zeros behind its last row and column.
  // Pieces of 16 bytes of a row stand permuted by the row, so that the eight that a matrix of
  // ldmatrix is read from lie in different banks.
  template <int kLines, typename RowOf>
  __device__ __forceinline__ void Copy(unsigned char* to, const T* from, int64_t stride, int first,
                                       int end, int k, bool aligned, RowOf row_of) const {
    constexpr int kPieces = kSkinnyGemmStep / 8;
    constexpr int kAll = S::kParts * kLines * kPieces;
    const auto copy = [&](int i, auto move) {
      const int line = i / kPieces, piece = i % kPieces, row = first + line % kLines;
      const int begin = k + line / kLines * a_.parts.part_steps * kSkinnyGemmStep + piece * 8;
      const int left = row < end ? a_.k - begin : 0;
      const int bytes = left >= 8 ? 16 : left > 0 ? 2 * left : 0;
      const T* source =
          bytes > 0 ? from + static_cast<int64_t>(row_of(row)) * stride + begin : from;
      move(to + line * S::kLine + ((piece ^ (line & 7)) << 4), source, bytes);
    };
    // Addresses are computed at each step: kept, they would take the registers of the sums.
    const int thread = simt::Opaque(static_cast<int>(threadIdx.x));
    if (aligned) {
#pragma unroll
      for (int i = 0; i < kAll; i += kSkinnyGemmThreads) {
        if (kAll % kSkinnyGemmThreads != 0 && i + thread >= kAll) break;
        copy(i + thread, [](unsigned char* place, const T* source, int bytes) {
          simt::CpAsync16(place, source, bytes);
        });
      }
    } else {
#pragma unroll 1
      for (int i = thread; i < kAll; i += kSkinnyGemmThreads) copy(i, MovePiece<T>);
    }
  }

  const SkinnyGemmArguments& a_;
  unsigned char* const ring_;
  int index_;
  SkinnyGemmItem<S> item_;
  int step_ = 0;
  int place_ = 0;
};

// A warp's share of a tile.
template <typename S>
struct SkinnyGemmSums {
  float of[S::kColumnTiles][S::kRowTiles][4];

  __device__ __forceinline__ void Clear() {
#pragma unroll
    for (int c = 0; c < S::kColumnTiles; ++c) {
#pragma unroll
      for (int r = 0; r < S::kRowTiles; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) of[c][r][i] = 0.0f;
      }
    }
  }

  // f(place of four sums in a list of as many as the warp has, those four).
  template <typename F>
  __device__ __forceinline__ void ForFours(F f) {
#pragma unroll
    for (int c = 0; c < S::kColumnTiles; ++c) {
#pragma unroll
      for (int r = 0; r < S::kRowTiles; ++r) f(c * S::kRowTiles + r, of[c][r]);
    }
  }
};

// Where a warp stands in its block.
template <typename S>
struct SkinnyGemmWarp {
  int lane = static_cast<int>(threadIdx.x) % 32;
  int column = static_cast<int>(threadIdx.x) / 32 % S::kWarpsColumns;
  int row = static_cast<int>(threadIdx.x) / 32 / S::kWarpsColumns % S::kWarpsRows;
  int part = static_cast<int>(threadIdx.x) / 32 / (S::kWarpsColumns * S::kWarpsRows);
};

// sums += what a place of the ring holds for the warp.
template <typename S>
__device__ __forceinline__ void Multiply(const unsigned char* place, const SkinnyGemmWarp<S>& warp,
                                         SkinnyGemmSums<S>& sums) {
  const int matrix = warp.lane / 8, line = warp.lane % 8;
  // Rows of an ldmatrix stand 8 apart, so that its lines' low bits are the lane's.
  const unsigned char* w =
      place + (warp.part * S::kColumns + warp.column * 16 * S::kColumnTiles + line) * S::kLine +
      matrix % 2 * 8 * S::kLine;
  const unsigned char* x =
      place + S::kXBegin + (warp.part * S::kRows + warp.row * 8 * S::kRowTiles + line) * S::kLine;
#pragma unroll
  for (int k = 0; k < kSkinnyGemmStep / 16; ++k) {
    uint32_t rows[S::kRowTiles][2];
    if constexpr (S::kRowTiles == 1) {
      simt::LdMatrix2(rows[0], x + (((2 * k + matrix % 2) ^ line) << 4));
    } else {
#pragma unroll
      for (int r = 0; r < S::kRowTiles; r += 2) {
        uint32_t pair[4];
        simt::LdMatrix4(
            pair, x + (8 * r + matrix / 2 * 8) * S::kLine + (((2 * k + matrix % 2) ^ line) << 4));
        rows[r][0] = pair[0];
        rows[r][1] = pair[1];
        rows[r + 1][0] = pair[2];
        rows[r + 1][1] = pair[3];
      }
    }
#pragma unroll
    for (int c = 0; c < S::kColumnTiles; ++c) {
      uint32_t weights[4];
      simt::LdMatrix4(weights, w + 16 * c * S::kLine + (((2 * k + matrix / 2) ^ line) << 4));
#pragma unroll
      for (int r = 0; r < S::kRowTiles; ++r) {
        simt::Mma16816<typename S::T>(sums.of[c][r], weights, rows[r]);
      }
    }
  }
}

__device__ __forceinline__ float BiasOf(const SkinnyGemmArguments& a, int column) {
  if (a.bias_dtype == DType::kF32) return static_cast<const float*>(a.bias)[column];
  if (a.bias_dtype == DType::kBF16) {
    return simt::Widen(static_cast<const BF16*>(a.bias)[column]);
  }
  return simt::Widen(static_cast<const simt::Half*>(a.bias)[column]);
}

// The joined sums, with the bias, to the output.
template <typename S>
__device__ __forceinline__ void StoreSums(const SkinnyGemmArguments& a, int tile,
                                          const SkinnyGemmWarp<S>& warp,
                                          const SkinnyGemmSums<S>& sums) {
  using T = typename S::T;
  const int first_row = warp.row * 8 * S::kRowTiles + warp.lane % 4 * 2;
#pragma unroll
  for (int c = 0; c < S::kColumnTiles; ++c) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column =
          tile * S::kColumns + (warp.column * S::kColumnTiles + c) * 16 + 8 * half + warp.lane / 4;
      if (column >= a.n) continue;
      const float bias = a.bias != nullptr ? BiasOf(a, RowOfColumn(a, column)) : 0.0f;
#pragma unroll
      for (int r = 0; r < S::kRowTiles; ++r) {
#pragma unroll
        for (int next = 0; next < 2; ++next) {
          const int row = first_row + 8 * r + next;
          if (row >= a.rows) continue;
          float sum = sums.of[c][r][2 * half + next];
          if (a.bias != nullptr) sum += bias;
          const int64_t at = row * a.out_stride + column;
          if (a.wide_out) {
            static_cast<float*>(a.out)[at] = sum;
          } else {
            static_cast<T*>(a.out)[at] = simt::Narrow<T>(sum);
          }
        }
      }
    }
  }
}

__device__ __forceinline__ void AddFour(float (&to)[4], const float4& more) {
  to[0] += more.x;
  to[1] += more.y;
  to[2] += more.z;
  to[3] += more.w;
}

// The parts of a block's warps meet in shared memory, at the warps that have the first.
template <typename S>
__device__ __forceinline__ void JoinWarps(const SkinnyGemmWarp<S>& warp, SkinnyGemmSums<S>& sums,
                                          unsigned char* join) {
  constexpr int kLanes = S::kWarpsColumns * 32;  // that have one part
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  auto* places = reinterpret_cast<float4*>(join);
  if (warp.part > 0) {
    const float(&own)[4] = sums.of[0][0];
    simt::Store(places + (warp.part - 1) * kLanes + lane,
                make_float4(own[0], own[1], own[2], own[3]));
  }
  __syncthreads();
  if (warp.part > 0) return;
#pragma unroll
  for (int part = 1; part < S::kParts; ++part) {
    AddFour(sums.of[0][0], simt::Load<float4>(places + (part - 1) * kLanes + lane));
  }
}

// Leaves the item's part where the block that comes last finds it. True in that one: sums are then
// those of all parts.
template <typename S>
__device__ __forceinline__ bool JoinBlocks(const SkinnyGemmArguments& a,
                                           const SkinnyGemmItem<S>& item, SkinnyGemmSums<S>& sums,
                                           unsigned char* join) {
  int& arrived = *reinterpret_cast<int*>(join);
  constexpr int64_t kTileFours = S::kRows * S::kColumns / 4;
  const int thread = static_cast<int>(threadIdx.x), parts = a.parts.parts;
  float4* tiles = reinterpret_cast<float4*>(a.partial) + item.tile * parts * kTileFours + thread;
  sums.ForFours([&](int i, const float(&four)[4]) {
    simt::Store(tiles + item.part * kTileFours + i * kSkinnyGemmThreads,
                make_float4(four[0], four[1], four[2], four[3]));
  });
  __threadfence();
  __syncthreads();
  if (thread == 0) arrived = atomicAdd(a.counters + item.tile, 1);
  __syncthreads();
  if (arrived != parts - 1) return false;
  __threadfence();
  sums.Clear();
  for (int part = 0; part < parts; ++part) {
    sums.ForFours([&](int i, float(&four)[4]) {
      const float4 more = __ldcg(tiles + part * kTileFours + i * kSkinnyGemmThreads);
      if (part == 0) {
        four[0] = more.x;
        four[1] = more.y;
        four[2] = more.z;
        four[3] = more.w;
      } else {
        AddFour(four, more);
      }
    });
  }
  if (thread == 0) a.counters[item.tile] = 0;
  return true;
}

template <typename S>
__global__ void __launch_bounds__(kSkinnyGemmThreads, S::kShape.blocks)
    SkinnyGemmProduct(const __grid_constant__ SkinnyGemmArguments a) {
  unsigned char* const ring = simt::DynamicShared();
  SkinnyGemmLoader<S> loader(a, ring);
#pragma unroll 1
  for (int i = 0; i < S::kStages - 1; ++i) loader.Next();
  const SkinnyGemmWarp<S> warp;
  const bool has_rows = warp.row * 8 * S::kRowTiles < a.rows;
  SkinnyGemmSums<S> sums;
  int place = 0;
  for (int index = static_cast<int>(blockIdx.x); index < a.items;
       index += static_cast<int>(gridDim.x)) {
    const SkinnyGemmItem<S> item(a, index);
    // Of this warp's part: the last may end before the others.
    const int steps = S::kWide ? item.steps : StepsOf(a.parts, warp.part);
    sums.Clear();
#pragma unroll 1
    for (int step = 0; step < item.steps; ++step) {
      simt::CpAsyncWait<S::kStages - 2>();
      __syncthreads();
      loader.Next();
      if (has_rows && step < steps) Multiply(ring + place * S::kStageBytes, warp, sums);
      place = place + 1 == S::kStages ? 0 : place + 1;
    }
    bool whole = true;
    if constexpr (S::kWide) {
      if (a.parts.parts > 1) whole = JoinBlocks(a, item, sums, ring + S::kStages * S::kStageBytes);
    } else if constexpr (S::kParts > 1) {
      JoinWarps(warp, sums, ring + S::kStages * S::kStageBytes);
      whole = warp.part == 0;
    }
    if (whole) StoreSums(a, item.tile, warp, sums);
  }
  simt::CpAsyncWait<0>();
}

template <typename T, int kIndex = 0>
void LaunchSkinnyGemmShape(int shape, const SkinnyGemmArguments& arguments, int blocks,
                           CudaStream stream) {
  if constexpr (kIndex < kSkinnyGemmShapeCount) {
    if (shape != kIndex) {
      return LaunchSkinnyGemmShape<T, kIndex + 1>(shape, arguments, blocks, stream);
    }
    using S = SkinnyGemmConfig<T, kIndex>;
    simt::Launch(SkinnyGemmProduct<S>, static_cast<unsigned>(min(blocks, arguments.items)),
                 kSkinnyGemmThreads, static_cast<size_t>(S::kShape.shared_bytes()), stream,
                 arguments);
  }
}

}  // namespace skein::engine
