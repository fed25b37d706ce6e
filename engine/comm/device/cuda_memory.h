// StreamMemory of a GPU. Internal to engine/comm.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/comm/device/stream_memory.h"

namespace skein::engine {

// OK, or UNAVAILABLE with the call's name, or RESOURCE_EXHAUSTED when memory is used up. A sticky
// error of CUDA ends the process (engine/cuda/device/cuda_check.h).
absl::Status AsCommStatus(cudaError_t error, const char* what);

// OK, or UNAVAILABLE when there is no device of this number.
absl::Status CheckCudaDevice(int device);

// The first error is kept. Its end waits for the stream: what else its work uses ends after it.
class CudaMemory : public StreamMemory {
 public:
  explicit CudaMemory(int device) : device_(device) {}
  ~CudaMemory() override;

  // To be called before anything else.
  absl::Status Open();

  int64_t PieceBytes() const override { return 32 << 20; }
  absl::StatusOr<std::byte*> Scratch(size_t bytes) override;
  void Copy(std::byte* to, std::span<const std::byte> from) override;
  void Sum(std::span<const void* const> sources, void* out, int64_t count, DType dtype) override;

  absl::Status Finish() override;

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }
  const absl::Status& error() const { return error_; }

 private:
  void Keep(absl::Status status);

  const int device_;
  cudaStream_t stream_ = nullptr;
  void* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
  absl::Status error_;
};

}  // namespace skein::engine
