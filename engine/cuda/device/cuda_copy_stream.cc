#include "engine/cuda/device/cuda_copy_stream.h"

#include <cuda_runtime_api.h>

#include <mutex>

#include "engine/cuda/device/cuda_check.h"
#include "engine/cuda/device/cuda_device.h"
#include "engine/cuda/device/event_marks.h"
#include "engine/cuda/kernels/copy_pieces.h"

namespace skein::engine {
namespace {

// From this mean size on, pieces are copied one by one by the GPU's copy engines, beside its
// multiprocessors; below it the calls would take longer than the bytes.
constexpr size_t kPieceBytesOfEngines = 128 << 10;

class CudaCopyStream final : public CopyStream {
 public:
  // `device` keeps the GPU open.
  CudaCopyStream(std::shared_ptr<CudaDevice> device, cudaStream_t stream)
      : device_(std::move(device)), stream_(stream), marks_(stream) {}
  ~CudaCopyStream() override {
    cudaSetDevice(device_->Info().id);
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }

  bool IsDevice(const void* pointer) const override {
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, pointer) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    return attributes.type == cudaMemoryTypeDevice;
  }

  absl::StatusOr<void*> AllocHost(size_t bytes) override {
    void* memory = nullptr;
    absl::Status status = Use();
    if (status.ok()) {
      status = FromCuda(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc");
    }
    if (!status.ok()) return status;
    return memory;
  }
  void FreeHost(void* pointer, size_t) override { cudaFreeHost(pointer); }

  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    const std::lock_guard lock(mu_);
    const absl::Status status = Use();
    if (!status.ok()) return status;
    return FromCuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_),
                    "cudaMemcpyAsync");
  }

  absl::Status CopyPieces(std::span<const CopyPiece> pieces) override {
    size_t bytes = 0;
    for (const CopyPiece& piece : pieces) bytes += piece.bytes;
    if (pieces.size() > 1 && bytes / pieces.size() < kPieceBytesOfEngines) {
      const std::lock_guard lock(mu_);
      const absl::Status status = Use();
      if (status.ok()) LaunchCopyPieces(pieces, stream_);
      return status;
    }
    for (const CopyPiece& piece : pieces) {
      const absl::Status status = Copy(piece.to, piece.from, piece.bytes);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<uint64_t> Mark() override {
    const absl::Status status = Use();
    if (!status.ok()) return status;
    return marks_.Mark();
  }

  absl::StatusOr<bool> Done(uint64_t mark) override { return marks_.Done(mark); }

 private:
  absl::Status Use() const { return FromCuda(cudaSetDevice(device_->Info().id), "cudaSetDevice"); }

  const std::shared_ptr<CudaDevice> device_;
  const cudaStream_t stream_;
  std::mutex mu_;
  EventMarks marks_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<CopyStream>> MakeCudaCopyStream(std::string_view name) {
  const absl::StatusOr<std::shared_ptr<CudaDevice>> device = OpenCudaDevice(name);
  if (!device.ok()) return device.status();
  // First in line where kernels of the engine wait for multiprocessors, too: its own are short.
  int least = 0, greatest = 0;
  absl::Status status =
      FromCuda(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriority");
  if (!status.ok()) return status;
  cudaStream_t stream = nullptr;
  status = FromCuda(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest),
                    "cudaStreamCreate");
  if (!status.ok()) return status;
  return std::make_shared<CudaCopyStream>(*device, stream);
}

}  // namespace skein::engine
