// Whether the code of our kernels runs on a GPU at all.
#pragma once

namespace skein::engine {

// CUDA's error (cudaError_t, 0: none) for the current device: cudaErrorNoKernelImageForDevice where
// the build has neither machine code nor PTX for it.
int KernelImageError();

}  // namespace skein::engine
