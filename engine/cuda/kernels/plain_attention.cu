// Paged attention, plainly: a warp for each row and head walks the keys 32 at a time, a key a lane
// for the scores, then a dimension a lane for the values, with the running maximum and sum of
// online softmax (Milakov, Gimelshein 2018, arXiv 1805.02867).
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/pack.h"
#include "engine/cuda/kernels/paged_address.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr int kWarps = 4;

template <typename T, typename Out, int kDimsALane>
__global__ void __launch_bounds__(kWarps * 32)
    PlainAttention(ConstMatrix q, PagedBatch batch, DeviceKv kv, float scale, Matrix out,
                   Matrix lse) {
  SKEIN_SHARED(float, shared_weights, [kWarps * 32]);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* weights = shared_weights + threadIdx.x / 32 * 32;
  const int64_t heads = q.cols / kv.head_dim;
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (warp >= batch.rows * heads) return;
  const int row = static_cast<int>(warp / heads);
  const int head = static_cast<int>(warp % heads);
  const DeviceSpan span = batch.spans[SpanOfRow(batch, row)];
  if (row - span.first_row >= span.token_count) return;  // behind the last span
  const int64_t t = span.token_begin + row - span.first_row;
  const int64_t seen = KeysSeen(span, row - span.first_row);
  const int kv_head = head / static_cast<int>(heads / span.kv_heads);
  const float* query = RowOf<float>(q, t) + static_cast<int64_t>(head) * kv.head_dim;
  const T* pool = static_cast<const T*>(kv.base);
  const float none = __uint_as_float(0xff800000u);

  float largest = none, total = 0.0f;
  float sums[kDimsALane] = {};
  for (int64_t first = 0; first < seen; first += 32) {
    const int64_t own = first + lane;
    float score = none;
    if (own < seen) {
      const T* key = pool + KvElement(batch, span, kv, 0, kv_head, own);
      float dot = 0.0f;
      for (int i = 0; i < kv.head_dim; ++i) dot += query[i] * simt::Widen(key[i]);
      score = dot * scale;
    }
    const float now = fmaxf(largest, WarpMax(score));
    const float shrink = expf(largest - now);
    const float weight = own < seen ? expf(score - now) : 0.0f;
    total = total * shrink + WarpSum(weight);
    largest = now;
#pragma unroll
    for (int d = 0; d < kDimsALane; ++d) sums[d] *= shrink;
    weights[lane] = weight;
    __syncwarp();
    const int keys = static_cast<int>(seen - first < 32 ? seen - first : 32);
    for (int j = 0; j < keys; ++j) {
      const float share = weights[j];
      const T* value = pool + KvElement(batch, span, kv, 1, kv_head, first + j);
#pragma unroll
      for (int d = 0; d < kDimsALane; ++d) {
        const int i = d * 32 + lane;
        if (i < kv.head_dim) sums[d] += share * simt::Widen(value[i]);
      }
    }
    __syncwarp();  // before the next weights
  }
  Out* to = RowOf<Out>(out, t) + static_cast<int64_t>(head) * kv.head_dim;
#pragma unroll
  for (int d = 0; d < kDimsALane; ++d) {
    const int i = d * 32 + lane;
    if (i < kv.head_dim) to[i] = simt::Narrow<Out>(seen == 0 ? 0.0f : sums[d] / total);
  }
  if (lse.data != nullptr && lane == 0) RowOf<float>(lse, t)[head] = largest + logf(total);
}

template <int kDimsALane>
void LaunchFor(ConstMatrix q, const PagedBatch& batch, const DeviceKv& kv, float scale, Matrix out,
               Matrix lse, CudaStream stream) {
  const int64_t warps = batch.rows * (q.cols / kv.head_dim);
  WithElement(kv.dtype, [&](auto element) {
    WithElement(out.dtype, [&](auto to) {
      simt::Launch(PlainAttention<decltype(element), decltype(to), kDimsALane>,
                   CeilDivide(warps, kWarps), kWarps * 32, 0, stream, q, batch, kv, scale, out,
                   lse);
    });
  });
}

}  // namespace

void PlainAttentionKernel(ConstMatrix q, const PagedBatch& batch, const DeviceKv& kv, float scale,
                          Matrix out, Matrix lse, CudaStream stream) {
  SKEIN_CHECK_MSG(kv.head_dim <= kPlainHeadDimMax, "head_dim: at most 512");
  if (batch.rows == 0 || q.cols == 0) return;
  if (kv.head_dim <= 128) {
    LaunchFor<4>(q, batch, kv, scale, out, lse, stream);
  } else if (kv.head_dim <= 256) {
    LaunchFor<8>(q, batch, kv, scale, out, lse, stream);
  } else {
    LaunchFor<kPlainHeadDimMax / 32>(q, batch, kv, scale, out, lse, stream);
  }
}

}  // namespace skein::engine
