#include "engine/cuda/attention/attention.h"

#include "engine/cuda/attention/flash_call.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr int kMergeWarps = 4;

// Joins the parts of a tile, a warp for each row, by their log-sum-exps, in their order.
__global__ void __launch_bounds__(kMergeWarps * 32, 4) MergePartials(FlashArguments a) {
  const AttentionList list = reinterpret_cast<const AttentionHeader*>(a.plan)->merges;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int kv_head = static_cast<int>(blockIdx.y);
  const float none = __uint_as_float(0xff800000u);
  for (int i = static_cast<int>(blockIdx.x); i < list.count; i += static_cast<int>(gridDim.x)) {
    const AttentionMerge merge = EntryOf<AttentionMerge>(a.plan, list, i);
    const DeviceSpan span = a.spans[merge.span];
    if (kv_head >= span.kv_heads) continue;
    const HeadRows where(span, a.heads, kv_head);
    const int64_t step = static_cast<int64_t>(span.kv_heads) * merge.rows;
    for (int r = warp; r < merge.rows; r += kMergeWarps) {
      const int64_t first = merge.partial + static_cast<int64_t>(kv_head) * merge.rows + r;
      const float* lses = a.partial_lse + first;
      float most = none;
      for (int p = lane; p < merge.parts; p += 32) most = fmaxf(most, lses[p * step]);
      for (int lanes = 16; lanes > 0; lanes /= 2) {
        most = fmaxf(most, __shfl_xor_sync(simt::kAllLanes, most, lanes));
      }
      const float shift = most == none ? 0.0f : most;
      float total = 0.0f;
      for (int p = lane; p < merge.parts; p += 32) total += simt::Exp2(lses[p * step] - shift);
      for (int lanes = 16; lanes > 0; lanes /= 2) {
        total += __shfl_xor_sync(simt::kAllLanes, total, lanes);
      }
      const float inverse = total > 0.0f ? 1.0f / total : 0.0f;
      const int row = merge.row_begin + r;
      const int64_t token = where.Token(row);
      const int head = where.Head(row);
      for (int dim = 4 * lane; dim < a.head_dim; dim += 4 * 32) {
        const float* values = a.partial_out + first * a.head_dim + dim;
        float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 4
        for (int p = 0; p < merge.parts; ++p) {
          const float share = simt::Exp2(lses[p * step] - shift) * inverse;
          const float4 part = simt::Load<float4>(values + p * step * a.head_dim);
          sum.x += share * part.x;
          sum.y += share * part.y;
          sum.z += share * part.z;
          sum.w += share * part.w;
        }
        StoreFour(a.out, token * a.out.stride + static_cast<int64_t>(head) * a.head_dim + dim, sum,
                  a.out_aligned);
      }
      if (a.lse != nullptr && lane == 0) {
        a.lse[token * a.lse_stride + head] =
            total > 0.0f ? NaturalLse(most + simt::Log2(total)) : none;
      }
    }
  }
}

// Whether moves of four elements may begin at every head of every row.
bool IsAligned(const ConstMatrix& m) {
  const size_t bytes = 4 * BytesOf(m.dtype);
  return reinterpret_cast<uintptr_t>(m.data) % bytes == 0 &&
         (m.rows <= 1 || static_cast<size_t>(m.stride) * BytesOf(m.dtype) % bytes == 0);
}

}  // namespace

void LaunchMerge(const FlashArguments& arguments, const AttentionGrid& grid, CudaStream stream) {
  if (grid.merges == 0) return;
  simt::Launch(MergePartials,
               dim3(static_cast<unsigned>(grid.merges), static_cast<unsigned>(grid.kv_heads)),
               kMergeWarps * 32, 0, stream, arguments);
}

bool FlashAttentionTakes(const DeviceKv& kv, float scale) {
  return kv.dtype != DType::kF32 && kv.head_dim % 8 == 0 && kv.head_dim <= kFlashHeadDimMax &&
         kv.block_elements % kv.head_dim == 0 && reinterpret_cast<uintptr_t>(kv.base) % 16 == 0 &&
         scale > 0.0f;
}

bool WgmmaTakes(int head_dim) { return head_dim > 32 && head_dim <= kWideHeadDimMax; }

void FlashAttention(const AttentionCall& call, const AttentionWork& work, CudaStream stream) {
  const DeviceKv& kv = call.kv;
  SKEIN_CHECK(FlashAttentionTakes(kv, call.scale));
  if (call.batch.count == 0 || work.grid.kv_heads == 0) return;
  auto* partial_out = static_cast<float*>(work.scratch);
  constexpr float kLog2E = 1.44269504088896340736f;
  const FlashArguments arguments = {
      static_cast<const float*>(call.q.data),
      call.q.stride,
      call.out,
      static_cast<float*>(call.lse.data),
      call.lse.stride,
      call.batch.spans,
      call.batch.tables,
      kv.base,
      static_cast<int32_t>(call.q.cols / kv.head_dim),
      kv.head_dim,
      static_cast<int32_t>(kv.block_elements / kv.head_dim),
      call.scale * kLog2E,
      IsAligned(call.q),
      IsAligned(call.out),
      static_cast<const unsigned char*>(work.plan),
      partial_out,
      partial_out == nullptr ? nullptr : partial_out + work.partial_rows * kv.head_dim};
  AttentionGrid others = work.grid;
  if (work.wide == WideKernel::kWgmma && WgmmaTakes(kv.head_dim)) {
    int& wide = others.items[static_cast<int>(AttentionKind::kWide)];
    if (wide > 0) {
      const auto launch = kv.head_dim <= 64 ? LaunchWgmma<64> : LaunchWgmma<128>;
      launch(kv.dtype, arguments, work.grid, stream);
      wide = 0;
    }
  }
  const auto launch = kv.head_dim <= 32    ? LaunchFlash<32>
                      : kv.head_dim <= 64  ? LaunchFlash<64>
                      : kv.head_dim <= 128 ? LaunchFlash<128>
                                           : LaunchFlash<256>;
  launch(kv.dtype, arguments, others, stream);
  LaunchMerge(arguments, work.grid, stream);
}

}  // namespace skein::engine
