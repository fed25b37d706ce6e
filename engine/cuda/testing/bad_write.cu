#include "engine/cuda/testing/bad_write.h"

#include <cuda_runtime.h>

namespace skein::engine {
namespace {

__global__ void Write(int* nowhere) { *nowhere = 1; }

}  // namespace

void LaunchBadWrite(CudaStream stream) { Write<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(64)); }

}  // namespace skein::engine
