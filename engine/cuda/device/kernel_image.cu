#include "engine/cuda/device/kernel_image.h"

#include <cuda_runtime.h>

namespace skein::engine {
namespace {

// Compiled as all others are.
__global__ void Nothing() {}

}  // namespace

int KernelImageError() {
  cudaFuncAttributes attributes{};
  const cudaError_t error = cudaFuncGetAttributes(&attributes, Nothing);
  if (error != cudaSuccess) cudaGetLastError();  // forgets it: the caller tells it
  return static_cast<int>(error);
}

}  // namespace skein::engine
