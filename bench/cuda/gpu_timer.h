// The GPU's own time for work on a stream, and what a failed call ends with. CUDA's headers.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <functional>

namespace skein::bench {

inline void Require(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "bench: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

inline void Require(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  std::fprintf(stderr, "bench: %s: %s\n", what, cublasGetStatusString(status));
  std::exit(1);
}

class GpuTimer {
 public:
  explicit GpuTimer(cudaStream_t stream) : stream_(stream) {
    Require(cudaEventCreate(&begin_), "cudaEventCreate");
    Require(cudaEventCreate(&end_), "cudaEventCreate");
  }
  ~GpuTimer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  GpuTimer(const GpuTimer&) = delete;
  GpuTimer& operator=(const GpuTimer&) = delete;

  // Seconds for what `body` puts on the stream.
  double Seconds(const std::function<void()>& body) {
    Require(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    body();
    Require(cudaEventRecord(end_, stream_), "cudaEventRecord");
    Require(cudaEventSynchronize(end_), "cudaEventSynchronize");
    float ms = 0;
    Require(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return ms * 1e-3;
  }

 private:
  const cudaStream_t stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

}  // namespace skein::bench
