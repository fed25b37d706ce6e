#include "engine/comm/device/cuda_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/comm/device/cuda_sum.h"
#include "engine/cuda/device/cuda_check.h"

namespace skein::engine {

absl::Status AsCommStatus(cudaError_t error, const char* what) {
  const absl::Status status = FromCuda(error, what);
  if (status.ok() || absl::IsResourceExhausted(status)) return status;
  return absl::UnavailableError(status.message());
}

absl::Status CheckCudaDevice(int device) {
  int count = 0;
  const absl::Status status = AsCommStatus(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (!status.ok() || (device >= 0 && device < count)) return status;
  return absl::UnavailableError(
      absl::StrCat("CUDA device ", device, " does not exist; this machine has ", count));
}

absl::Status CudaMemory::Open() {
  auto status = AsCommStatus(cudaSetDevice(device_), "cudaSetDevice");
  if (!status.ok()) return status;
  return AsCommStatus(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking),
                      "cudaStreamCreate");
}

CudaMemory::~CudaMemory() {
  cudaSetDevice(device_);
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  if (scratch_ != nullptr) cudaFree(scratch_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

absl::Status CudaMemory::Finish() {
  absl::Status status = AsCommStatus(cudaSetDevice(device_), "cudaSetDevice");
  if (status.ok()) status = AsCommStatus(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  Keep(std::move(status));
  return error_;
}

void CudaMemory::Keep(absl::Status status) {
  if (error_.ok()) error_ = std::move(status);
}

absl::StatusOr<std::byte*> CudaMemory::Scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    cudaSetDevice(device_);
    if (scratch_ != nullptr) cudaFree(scratch_);
    scratch_ = nullptr;
    scratch_bytes_ = 0;
    auto status = AsCommStatus(cudaMalloc(&scratch_, bytes), "cudaMalloc");
    if (!status.ok()) return status;
    scratch_bytes_ = bytes;
  }
  return static_cast<std::byte*>(scratch_);
}

void CudaMemory::Copy(std::byte* to, std::span<const std::byte> from) {
  cudaSetDevice(device_);
  Keep(
      AsCommStatus(cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyDeviceToDevice, stream_),
                   "cudaMemcpyAsync"));
}

void CudaMemory::Sum(std::span<const void* const> sources, void* out, int64_t count, DType dtype) {
  cudaSetDevice(device_);
  Keep(AsCommStatus(CudaSumInOrder(sources, out, count, dtype, stream_), "sum"));
}

}  // namespace skein::engine
