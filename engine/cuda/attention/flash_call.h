// The arguments of the attention kernels, and where rows of an item lie. For .cu files only.
#pragma once

#include "engine/base/tensor.h"
#include "engine/cuda/attention/attention_plan.h"
#include "engine/cuda/kernels/paged.h"
#include "engine/cuda/simt/simt.h"

namespace skein::engine {

struct FlashArguments {
  const float* q;
  int64_t q_stride;
  Matrix out;
  float* lse;  // or null
  int64_t lse_stride;
  const DeviceSpan* spans;
  const int32_t* tables;
  const void* pool;
  int32_t heads;
  int32_t head_dim;
  int32_t pool_block_rows;  // rows of head_dim elements in a block
  float scale_log2;
  bool q_aligned;    // 16-byte moves of four elements do
  bool out_aligned;  // moves of four elements do
  const unsigned char* plan;
  float* partial_out;  // [rows, head_dim]
  float* partial_lse;  // base 2
};

template <typename Entry>
__device__ __forceinline__ const Entry& EntryOf(const unsigned char* plan,
                                                const AttentionList& list, int index) {
  return reinterpret_cast<const Entry*>(plan + list.begin)[index];
}

// Rows of one KV head of a span.
struct HeadRows {
  int64_t token_begin;
  int group;
  int first_head;
  int rows;  // of the span

  __device__ __forceinline__ HeadRows(const DeviceSpan& span, int heads, int kv_head)
      : token_begin(span.token_begin),
        group(heads / span.kv_heads),
        first_head(kv_head * group),
        rows(span.token_count * group) {}
  __device__ __forceinline__ int64_t Token(int row) const { return token_begin + row / group; }
  __device__ __forceinline__ int Head(int row) const { return first_head + row % group; }
};

__device__ __forceinline__ void StoreOne(const Matrix& out, int64_t index, float value) {
  if (out.dtype == DType::kF32) {
    static_cast<float*>(out.data)[index] = value;
  } else if (out.dtype == DType::kBF16) {
    static_cast<BF16*>(out.data)[index] = simt::Narrow<BF16>(value);
  } else {
    static_cast<simt::Half*>(out.data)[index] = simt::Narrow<simt::Half>(value);
  }
}

// Elements index … index + 3 of the output; `aligned`: as one or two moves.
__device__ __forceinline__ void StoreFour(const Matrix& out, int64_t index, const float4& v,
                                          bool aligned) {
  if (!aligned) {
    StoreOne(out, index, v.x);
    StoreOne(out, index + 1, v.y);
    StoreOne(out, index + 2, v.z);
    StoreOne(out, index + 3, v.w);
  } else if (out.dtype == DType::kF32) {
    simt::Store(static_cast<float*>(out.data) + index, v);
  } else if (out.dtype == DType::kBF16) {
    simt::Store(static_cast<BF16*>(out.data) + index,
                make_uint2(simt::Narrow2<BF16>(v.x, v.y), simt::Narrow2<BF16>(v.z, v.w)));
  } else {
    simt::Store(
        static_cast<simt::Half*>(out.data) + index,
        make_uint2(simt::Narrow2<simt::Half>(v.x, v.y), simt::Narrow2<simt::Half>(v.z, v.w)));
  }
}

// Natural, of log2 of the sum of 2^(score · log2 e).
__device__ __forceinline__ float NaturalLse(float lse2) { return lse2 * 0.69314718055994530942f; }

// The kernels for head_dim up to kDim and KV of `dtype`, one for each kind that the grid has; each
// in a file of its own, so that they compile beside one another.
template <int kDim>
void LaunchFlash(DType dtype, const FlashArguments& arguments, const AttentionGrid& grid,
                 CudaStream stream);
extern template void LaunchFlash<32>(DType, const FlashArguments&, const AttentionGrid&,
                                     CudaStream);
extern template void LaunchFlash<64>(DType, const FlashArguments&, const AttentionGrid&,
                                     CudaStream);
extern template void LaunchFlash<128>(DType, const FlashArguments&, const AttentionGrid&,
                                      CudaStream);
extern template void LaunchFlash<256>(DType, const FlashArguments&, const AttentionGrid&,
                                      CudaStream);

// Wide tiles alone, on Hopper; of a grid that has some.
template <int kDim>
void LaunchWgmma(DType dtype, const FlashArguments& arguments, const AttentionGrid& grid,
                 CudaStream stream);
extern template void LaunchWgmma<64>(DType, const FlashArguments&, const AttentionGrid&,
                                     CudaStream);
extern template void LaunchWgmma<128>(DType, const FlashArguments&, const AttentionGrid&,
                                      CudaStream);

void LaunchMerge(const FlashArguments& arguments, const AttentionGrid& grid, CudaStream stream);

}  // namespace skein::engine
