#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "engine/comm/device/cuda_sum.h"

namespace skein::engine {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocksMax = 1024;
constexpr int kLevels = 16;  // sums that wait for a neighbour (SumInOrder)
static_assert(kCudaSumSourcesMax < 1 << (kLevels - 1));

struct Sources {
  const void* data[kCudaSumSourcesMax];
  int count;
};

__device__ float Widen(float value) { return value; }
__device__ float Widen(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ float Widen(__half value) { return __half2float(value); }

template <typename T>
__device__ T Narrow(float value);
template <>
__device__ float Narrow<float>(float value) {
  return value;
}
template <>
__device__ __nv_bfloat16 Narrow<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}
template <>
__device__ __half Narrow<__half>(float value) {
  return __float2half_rn(value);
}

template <typename T>
__global__ void Sum(Sources sources, T* out, int64_t count) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += step) {
    float waiting[kLevels];
    int depth = 0;
    for (int s = 0; s < sources.count; ++s) {
      float sum = Widen(static_cast<const T*>(sources.data[s])[i]);
      for (int rest = s; rest % 2 == 1; rest /= 2) sum = __fadd_rn(waiting[--depth], sum);
      waiting[depth++] = sum;
    }
    float sum = waiting[--depth];
    while (depth > 0) sum = __fadd_rn(waiting[--depth], sum);
    out[i] = Narrow<T>(sum);
  }
}

template <typename T>
void Launch(const Sources& sources, void* out, int64_t count, cudaStream_t stream) {
  const int64_t blocks = std::min(kBlocksMax, (count + kThreads - 1) / kThreads);
  Sum<T><<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(sources, static_cast<T*>(out),
                                                                 count);
}

}  // namespace

cudaError_t CudaSumInOrder(std::span<const void* const> sources, void* out, int64_t count,
                           DType dtype, cudaStream_t stream) {
  if (sources.empty() || sources.size() > kCudaSumSourcesMax) return cudaErrorInvalidValue;
  if (count == 0) return cudaSuccess;
  Sources all{};
  std::copy(sources.begin(), sources.end(), all.data);
  all.count = static_cast<int>(sources.size());
  if (dtype == DType::kF32) Launch<float>(all, out, count, stream);
  if (dtype == DType::kBF16) Launch<__nv_bfloat16>(all, out, count, stream);
  if (dtype == DType::kF16) Launch<__half>(all, out, count, stream);
  return cudaGetLastError();
}

}  // namespace skein::engine
