// The rows of an item as all attention kernels treat them: queries on their way in, which keys a
// row sees, results and log-sum-exps on their way out. For .cu files only.
#pragma once

#include "engine/cuda/attention/flash_call.h"
#include "engine/cuda/attention/flash_tile.h"

namespace skein::engine {

// Eight elements of a query row.
struct EightFloats {
  float4 low, high;
};

__device__ __forceinline__ const float* QueryAt(const FlashArguments& a, const HeadRows& where,
                                                int row, int piece) {
  return a.q + where.Token(row) * a.q_stride + static_cast<int64_t>(where.Head(row)) * a.head_dim +
         piece * 8;
}
__device__ __forceinline__ EightFloats LoadEight(const float* from, bool aligned) {
  if (aligned) return {simt::Load<float4>(from), simt::Load<float4>(from + 4)};
  return {make_float4(from[0], from[1], from[2], from[3]),
          make_float4(from[4], from[5], from[6], from[7])};
}
template <typename T>
__device__ __forceinline__ uint4 Round(const EightFloats& v) {
  return make_uint4(simt::Narrow2<T>(v.low.x, v.low.y), simt::Narrow2<T>(v.low.z, v.low.w),
                    simt::Narrow2<T>(v.high.x, v.high.y), simt::Narrow2<T>(v.high.z, v.high.w));
}

// Rounded to T; zeros beyond the span's rows and head_dim.
template <typename T>
__device__ __forceinline__ uint4 QueryPiece(const FlashArguments& a, const HeadRows& where, int row,
                                            int piece) {
  if (row >= where.rows || piece * 8 >= a.head_dim) return make_uint4(0, 0, 0, 0);
  return Round<T>(LoadEight(QueryAt(a, where, row, piece), a.q_aligned));
}

// The row's keys are those below this; none from key_end on.
__device__ __forceinline__ int LimitOf(const DeviceSpan& span, int group, int row, int key_end) {
  const int last = span.token_count * group - 1;
  const int64_t seen =
      span.keys >= 0 ? span.keys : span.position + (row < last ? row : last) / group + 1;
  return seen < key_end ? static_cast<int>(seen) : key_end;
}

// Row and log-sum-exp where an item's results go: the call's, or the partial ones.
template <typename S>
struct Target {
  const FlashArguments& a;
  const HeadRows& where;
  int row_begin;
  int64_t partial;  // of the tile's first row, or -1

  __device__ __forceinline__ Target(const FlashArguments& a_, const HeadRows& where_,
                                    const AttentionItem& item, int kv_head)
      : a(a_), where(where_), row_begin(item.row_begin), partial(-1) {
    if (item.partial < 0) return;
    const int left = where.rows - item.row_begin;
    partial = item.partial + static_cast<int64_t>(kv_head) * (left < S::kRows ? left : S::kRows);
  }
  __device__ __forceinline__ bool Has(int row) const { return row_begin + row < where.rows; }
  __device__ __forceinline__ Matrix Out() const {
    return partial < 0 ? a.out : Matrix{a.partial_out, DType::kF32, 0, 0, a.head_dim};
  }
  __device__ __forceinline__ bool aligned() const { return partial >= 0 || a.out_aligned; }
  __device__ __forceinline__ int64_t Begin(int row) const {
    if (partial >= 0) return (partial + row) * a.head_dim;
    return where.Token(row_begin + row) * a.out.stride +
           static_cast<int64_t>(where.Head(row_begin + row)) * a.head_dim;
  }
  __device__ __forceinline__ void SetLse(int row, float lse2) const {
    if (partial >= 0) {
      a.partial_lse[partial + row] = lse2;
    } else if (a.lse != nullptr) {
      a.lse[where.Token(row_begin + row) * a.lse_stride + where.Head(row_begin + row)] =
          NaturalLse(lse2);
    }
  }
};

// log2 of the sum of 2^(score · log2 e); -inf for none.
__device__ __forceinline__ float Lse2(float largest, float total, float scale_log2) {
  return total > 0.0f ? largest * scale_log2 + simt::Log2(total) : __uint_as_float(0xff800000u);
}

// A lane's share of a row of results: two neighbours of each eight.
template <typename S, typename StorePair>
__device__ __forceinline__ void ForPairs(const float (&sums)[S::kDimTiles][4], int half,
                                         float factor, int head_dim, StorePair store) {
  const int first = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int d = 0; d < S::kDimTiles; ++d) {
    if (8 * d < head_dim) {
      store(8 * d + first, sums[d][2 * half] * factor, sums[d][2 * half + 1] * factor);
    }
  }
}

template <typename S>
__device__ __forceinline__ void StoreRow(const Matrix& out, int64_t begin, bool aligned,
                                         const float (&sums)[S::kDimTiles][4], int half,
                                         float factor, int head_dim) {
  if (!aligned) {
    ForPairs<S>(sums, half, factor, head_dim, [&](int i, float x, float y) {
      StoreOne(out, begin + i, x);
      StoreOne(out, begin + i + 1, y);
    });
  } else if (out.dtype == DType::kF32) {
    float* to = static_cast<float*>(out.data) + begin;
    ForPairs<S>(sums, half, factor, head_dim,
                [&](int i, float x, float y) { simt::Store(to + i, make_float2(x, y)); });
  } else if (out.dtype == DType::kBF16) {
    BF16* to = static_cast<BF16*>(out.data) + begin;
    ForPairs<S>(sums, half, factor, head_dim,
                [&](int i, float x, float y) { simt::Store(to + i, simt::Narrow2<BF16>(x, y)); });
  } else {
    simt::Half* to = static_cast<simt::Half*>(out.data) + begin;
    ForPairs<S>(sums, half, factor, head_dim, [&](int i, float x, float y) {
      simt::Store(to + i, simt::Narrow2<simt::Half>(x, y));
    });
  }
}

// Results of warps that have all keys of their rows.
template <typename S>
__device__ __forceinline__ void StoreRows(const Target<S>& target, const RowState<S>& state,
                                          const float (&sums)[S::kRowTiles][S::kDimTiles][4],
                                          int first_row) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Matrix out = target.Out();
#pragma unroll
  for (int m = 0; m < S::kRowTiles; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = QuadSum(state.total[m][half]);
      const int row = first_row + 16 * m + 8 * half + lane / 4;
      if (!target.Has(row)) continue;
      StoreRow<S>(out, target.Begin(row), target.aligned(), sums[m], half,
                  total > 0.0f ? 1.0f / total : 0.0f, target.a.head_dim);
      if (lane % 4 == 0) {
        target.SetLse(row, Lse2(state.largest[m][half], total, target.a.scale_log2));
      }
    }
  }
}

}  // namespace skein::engine
