// CudaDevice: the memory of one GPU as a Device, and the stream on which all its work is put.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/cuda/simt/stream.h"
#include "engine/device/device.h"

namespace skein::engine {

// The N of "cuda:N". INVALID_ARGUMENT names the field `device` and the value.
absl::StatusOr<int> ParseCudaDevice(std::string_view name);

struct CudaDeviceInfo {
  int id = 0;
  std::string name;    // "NVIDIA H200"
  int capability = 0;  // 90 for 9.0
  int multiprocessors = 0;
  int block_shared_bytes = 0;  // that a block may ask for
  MemoryUse memory;            // when it was opened
};

// OK for a GPU that our kernels run on. `code_error` is what CUDA says of them on it, empty when it
// has code for it (kernel_image.h). INVALID_ARGUMENT names the field `device`, the GPU and its
// compute capability: older than 8.0, or one that this build has no code for.
absl::Status CheckCapability(const CudaDeviceInfo& info, std::string_view code_error);

// What an allocation takes: whole pieces of 2 MiB, which CUDA gives to nobody else. Smaller ones
// share a piece, and CUDA's IPC hands over, and closes, whole pieces.
constexpr size_t WholePieces(size_t bytes) {
  constexpr size_t kPiece = size_t{2} << 20;
  return bytes == 0 ? kPiece : (bytes + kPiece - 1) / kPiece * kPiece;
}

// One stream, not synchronised with others. Thread-safe as Device is; a thread that calls it has
// this GPU as its current device afterwards.
class CudaDevice : public Device {
 public:
  virtual const CudaDeviceInfo& Info() const = 0;
  virtual CudaStream Stream() const = 0;
};

// Opens "cuda:N". INVALID_ARGUMENT (field `device`, the value, and what is there instead) for a
// name that is no such device, an id that the machine has not, or a GPU that CheckCapability
// refuses; FAILED_PRECONDITION when there is no driver. Memory comes in WholePieces. Copy from the
// host's memory stages it before it returns, large ones through pinned pieces that are filled while
// the last is sent; from pinned memory (PinnedBuffer) it is asynchronous, and the memory must stay
// until Synchronize.
absl::StatusOr<std::shared_ptr<CudaDevice>> OpenCudaDevice(std::string_view name);

// Page-locked memory of the host, which the GPU copies from and to at full speed.
class PinnedBuffer {
 public:
  static absl::StatusOr<PinnedBuffer> Allocate(size_t bytes);
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace skein::engine
