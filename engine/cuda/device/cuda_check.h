// Turns failures of CUDA calls into statuses. Internal to engine/cuda and engine/comm, because it
// includes CUDA's headers.
#pragma once

#include <cuda_runtime_api.h>

#include "absl/status/status.h"

namespace skein::engine {

// OK, or RESOURCE_EXHAUSTED for memory, INTERNAL otherwise, with `what` and CUDA's words. An error
// that leaves the context unusable (a sticky one: a bad address in a kernel, a launch that failed,
// ECC, a GPU that fell off the bus) ends the process instead: nothing in it can be trusted, and
// processes that watch it treat it as a death.
absl::Status FromCuda(cudaError_t error, const char* what);

// While it lives, what ends the process on this thread says `hint`, too. One at a time.
class CudaHint {
 public:
  explicit CudaHint(const char* hint);
  ~CudaHint();
  CudaHint(const CudaHint&) = delete;
  CudaHint& operator=(const CudaHint&) = delete;
};

// Ends the process on any error.
void RequireCuda(cudaError_t error, const char* what);

}  // namespace skein::engine
