// Kernels of the CUDA backend, as hosts call them: each puts one kernel on `stream` and returns.
// Definitions are in the .cu files, compiled by nvcc or for the emulator (engine/cuda/simt/simt.h).
// Shapes and meanings are those of engine/ops/ops.h, checked there; all buffers, those of index
// lists too, are device memory. Nothing is launched for an empty batch.
//
// Rows are independent and every sum is in a fixed order, so results do not depend on what else is
// in the batch.
#pragma once

#include <cstdint>

#include "engine/base/tensor.h"
#include "engine/cuda/kernels/paged.h"
#include "engine/cuda/simt/stream.h"

namespace skein::engine {

// ids [out.rows].
void EmbedKernel(const int32_t* ids, ConstMatrix table, Matrix out, CudaStream stream);

// First x += y where y is not empty (x f32, y f32 [R, N]); then out = norm(x) * weight. One pass: a
// row is read once and stays in shared memory. out may be x.
void RmsNormKernel(Matrix x, ConstMatrix y, ConstVector weight, float eps, Matrix out,
                   CudaStream stream);

// positions [x.rows]; cos, sin as RopeTable has them.
void RopeKernel(Matrix x, const int32_t* positions, const float* cos, const float* sin,
                int head_dim, CudaStream stream);

// Rows of a PagedBatch that are behind its last span go nowhere. Where `positions` [k.rows] is not
// null, keys are rotated to them on the way (k itself stays as it is).
void StoreKvKernel(ConstMatrix k, ConstMatrix v, const PagedBatch& batch, const DeviceKv& kv,
                   const int32_t* positions, const float* cos, const float* sin, CudaStream stream);

void SwiGluKernel(ConstMatrix gate, ConstMatrix up, Matrix out, CudaStream stream);

void AddKernel(Matrix x, ConstMatrix y, CudaStream stream);

void MergeAttentionKernel(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b,
                          CudaStream stream);

// out[r, :] = row[0, :].
void BroadcastRowKernel(ConstVector row, Matrix out, CudaStream stream);

// Paged attention as its definition reads, a warp for each row and head: what faster kernels are
// compared with. head_dim <= kPlainHeadDimMax.
inline constexpr int kPlainHeadDimMax = 512;
void PlainAttentionKernel(ConstMatrix q, const PagedBatch& batch, const DeviceKv& kv, float scale,
                          Matrix out, Matrix lse, CudaStream stream);

// MatMul for any dtypes and strides in f32 on the ordinary cores, each sum in the order of k.
void PlainGemmKernel(ConstMatrix x, ConstMatrix w, ConstVector bias, Matrix out, CudaStream stream);

// f32 rows x [R, K] as rows of a 16-bit type. parts f16 [2 R, K]: x[r] = scales[r] * (parts[r] +
// parts[R + r] / 2^11), scales [R] powers of two; parts bf16 [3 R, K]: x[r] is the sum of parts[r],
// parts[R + r] and parts[2 R + r], `scales` null.
void SplitRowsKernel(ConstMatrix x, Matrix parts, float* scales, CudaStream stream);

// From the products of such parts, f32 [2 R or 3 R, N], to out [R, N], with the bias added.
void JoinProductsKernel(ConstMatrix products, const float* scales, ConstVector bias, Matrix out,
                        CudaStream stream);

}  // namespace skein::engine
