// Paged attention on tensor cores, as hosts call it: FlashAttention-2 (Dao 2023, arXiv 2307.08691)
// over block tables, with packed query groups and split keys (attention_plan.h); on Hopper,
// FlashAttention-3 for wide tiles. Results are those
// of Ops::PagedAttention with queries and weights rounded to KV's dtype, sums in f32.
//
// A step makes one plan for all of its layers, and copies it to the device with the batch:
//
//   AttentionPlan plan(policy);                        // kept from step to step
//   plan.Build(spans, heads, head_dim);
//   … bytes() to the device, `scratch` of AttentionScratchBytes(plan.partial_rows(), head_dim)
//   FlashAttention({q, batch, kv, scale, out, lse}, {plan.grid(), device_plan, scratch,
//                  plan.partial_rows()}, stream);
//
// For a captured decode graph, BoundDecode gives the grid and the sizes of plan and scratch; before
// each replay the batch and a new plan go to the places that the graph was captured with.
//
// As with all Ops, `lse` is natural, out zeros and lse -inf where a row sees no key.
#pragma once

#include <cstddef>

#include "engine/base/tensor.h"
#include "engine/cuda/attention/attention_plan.h"
#include "engine/cuda/kernels/paged.h"
#include "engine/cuda/simt/stream.h"

namespace skein::engine {

struct AttentionCall {
  ConstMatrix q;  // f32 [T, heads * head_dim]
  PagedBatch batch;
  DeviceKv kv;
  float scale;
  Matrix out;  // any dtype [T, heads * head_dim]
  Matrix lse;  // f32 [T, heads], or empty
};

// Whether WideKernel::kWgmma is for it; wide tiles of other head_dims go to kMmaSync.
bool WgmmaTakes(int head_dim);

// Device memory that belongs to a plan, and how to go about it.
struct AttentionWork {
  AttentionGrid grid;
  const void* plan = nullptr;  // AttentionPlan::bytes
  void* scratch = nullptr;     // AttentionScratchBytes(partial_rows, head_dim), aligned to 16
  int64_t partial_rows = 0;    // that the scratch is for
  WideKernel wide = WideKernel::kMmaSync;
};

// Whether FlashAttention takes it: bf16 or f16 KV aligned to 16 bytes, head_dim a multiple of 8 up
// to kFlashHeadDimMax, scale > 0. Rows of q, out and lse may begin anywhere. Everything else is for
// PlainAttentionKernel.
inline constexpr int kFlashHeadDimMax = 256;
bool FlashAttentionTakes(const DeviceKv& kv, float scale);

// Puts the kernels on the stream: one for each kind of tile that the grid has, then the merge.
// REQUIRES: FlashAttentionTakes.
void FlashAttention(const AttentionCall& call, const AttentionWork& work, CudaStream stream);

}  // namespace skein::engine
