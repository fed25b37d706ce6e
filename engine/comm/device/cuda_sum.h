// SumInOrder (reduce.h) on a CUDA device. Internal to engine/comm.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "engine/base/dtype.h"

namespace skein::engine {

inline constexpr size_t kCudaSumSourcesMax = 64;

// Starts the sum on `stream`. All pointers are device memory; at most kCudaSumSourcesMax sources.
cudaError_t CudaSumInOrder(std::span<const void* const> sources, void* out, int64_t count,
                           DType dtype, cudaStream_t stream);

}  // namespace skein::engine
