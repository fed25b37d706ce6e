// What the skinny GEMM kernels are launched with. One launch takes the rows of one tile at most:
// skinny_gemm.cc cuts.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/cuda/simt/stream.h"
#include "engine/cuda/skinny_gemm/skinny_gemm_plan.h"

namespace skein::engine {

struct SkinnyGemmArguments {
  const void* x;     // [rows, k]
  const void* w;     // row RowOfColumn(c) makes output column c; row length k; x's dtype
  const void* bias;  // [n], likewise, or null
  void* out;         // [rows, n]
  int64_t x_stride, w_stride, out_stride;
  DType bias_dtype;
  bool wide_out;   // f32; else of w's dtype
  bool x_aligned;  // 16-byte moves do
  bool w_aligned;
  int rows, n, k;
  int band_at[2], band_skips[2];  // RowBands
  SkinnyGemmParts parts;
  int items;
  float* partial;  // where parts are left
  int* counters;   // 0 before and behind
};

// On `stream`, with up to `blocks` blocks. T is BF16 or simt::Half; dtype says which.
void LaunchSkinnyGemm(DType dtype, int shape, const SkinnyGemmArguments& arguments, int blocks,
                      CudaStream stream);

// Each for one dtype, so that they compile in parallel.
void LaunchSkinnyGemmBf16(int shape, const SkinnyGemmArguments& arguments, int blocks,
                          CudaStream stream);
void LaunchSkinnyGemmF16(int shape, const SkinnyGemmArguments& arguments, int blocks,
                         CudaStream stream);

}  // namespace skein::engine
