// StoreKv and MergeAttention.
#include "engine/cuda/kernels/kernels.h"
#include "engine/cuda/kernels/pack.h"
#include "engine/cuda/kernels/paged_address.h"

namespace skein::engine {
namespace {

constexpr int kThreads = 128;

// A block for each row of the batch: first its keys, then its values.
template <typename T, int kCount>
__global__ void __launch_bounds__(kThreads)
    StoreKv(ConstMatrix k, ConstMatrix v, PagedBatch batch, DeviceKv kv, const int32_t* positions,
            const float* cos, const float* sin) {
  const int row = static_cast<int>(blockIdx.x);
  const DeviceSpan span = batch.spans[SpanOfRow(batch, row)];
  const int64_t in_span = row - span.first_row;
  if (in_span >= span.token_count) return;  // behind the last span
  const int64_t position = span.position + in_span;
  const int64_t t = span.token_begin + in_span;
  const int half = kv.head_dim / 2;
  const int64_t turn = positions == nullptr ? 0 : positions[t];
  T* pool = static_cast<T*>(kv.base);
  for (int64_t col = threadIdx.x * kCount; col < k.cols; col += kThreads * kCount) {
    const int head = static_cast<int>(col / kv.head_dim);
    const int i = static_cast<int>(col % kv.head_dim);
    const float* key = RowOf<float>(k, t) + col;
    float values[kCount];
    LoadPack<kCount>(key, values);
    if (positions != nullptr) {
      const bool low = i < half;
      const int64_t angle = turn * half + (low ? i : i - half);
      float other[kCount], c[kCount], s[kCount];
      LoadPack<kCount>(low ? key + half : key - half, other);
      LoadPack<kCount>(cos + angle, c);
      LoadPack<kCount>(sin + angle, s);
#pragma unroll
      for (int j = 0; j < kCount; ++j) {
        values[j] = low ? values[j] * c[j] - other[j] * s[j] : values[j] * c[j] + other[j] * s[j];
      }
    }
    StorePack<kCount>(pool + KvElement(batch, span, kv, 0, head, position) + i, values);
    LoadPack<kCount>(RowOf<float>(v, t) + col, values);
    StorePack<kCount>(pool + KvElement(batch, span, kv, 1, head, position) + i, values);
  }
}

// A warp for each row and head.
__global__ void __launch_bounds__(kThreads)
    MergeAttention(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b) {
  const int64_t warp = static_cast<int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
  if (warp >= lse_a.rows * lse_a.cols) return;
  const int64_t t = warp / lse_a.cols, head = warp % lse_a.cols;
  const int64_t dim = out_a.cols / lse_a.cols;
  const float a = RowOf<float>(lse_a, t)[head], b = RowOf<float>(lse_b, t)[head];
  const float largest = fmaxf(a, b);
  if (largest == __uint_as_float(0xff800000u)) return;  // neither saw a key: a stays as it is
  const float share_a = expf(a - largest), share_b = expf(b - largest);
  const float total = share_a + share_b;
  float* to = RowOf<float>(out_a, t) + head * dim;
  const float* from = RowOf<float>(out_b, t) + head * dim;
  for (int64_t i = threadIdx.x % 32; i < dim; i += 32) {
    // A side that saw no key may hold anything, NaN too.
    const float of_a = share_a == 0.0f ? 0.0f : share_a * to[i];
    const float of_b = share_b == 0.0f ? 0.0f : share_b * from[i];
    to[i] = (of_a + of_b) / total;
  }
  __syncwarp();  // all lanes have read lse_a
  if (threadIdx.x % 32 == 0) RowOf<float>(lse_a, t)[head] = largest + logf(total);
}

}  // namespace

void StoreKvKernel(ConstMatrix k, ConstMatrix v, const PagedBatch& batch, const DeviceKv& kv,
                   const int32_t* positions, const float* cos, const float* sin,
                   CudaStream stream) {
  if (batch.rows == 0 || k.cols == 0) return;
  const int per_half = positions != nullptr ? 2 : 1;  // a pack must not reach over halves
  const bool aligned = RowsAreAligned(k, v) && kv.head_dim % (kPack * per_half) == 0 &&
                       reinterpret_cast<uintptr_t>(kv.base) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(cos) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(sin) % 16 == 0;
  WithPack(aligned, [&](auto count) {
    WithElement(kv.dtype, [&](auto element) {
      simt::Launch(StoreKv<decltype(element), decltype(count)::value>,
                   static_cast<unsigned>(batch.rows), kThreads, 0, stream, k, v, batch, kv,
                   positions, cos, sin);
    });
  });
}

void MergeAttentionKernel(Matrix out_a, Matrix lse_a, ConstMatrix out_b, ConstMatrix lse_b,
                          CudaStream stream) {
  const int64_t warps = lse_a.rows * lse_a.cols;
  if (warps == 0) return;
  simt::Launch(MergeAttention, CeilDivide(warps, kThreads / 32), kThreads, 0, stream, out_a, lse_a,
               out_b, lse_b);
}

}  // namespace skein::engine
