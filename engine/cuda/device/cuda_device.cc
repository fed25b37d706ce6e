#include "engine/cuda/device/cuda_device.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/cuda/device/cuda_check.h"
#include "engine/cuda/device/event_marks.h"
#include "engine/cuda/device/kernel_image.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kPieceBytes = size_t{16} << 20;  // of pinned memory, in a staged copy
constexpr size_t kStagedMin = size_t{1} << 20;    // smaller copies CUDA stages itself

class OpenedDevice final : public CudaDevice {
 public:
  OpenedDevice(CudaDeviceInfo info, cudaStream_t stream)
      : info_(std::move(info)), stream_(stream), marks_(stream) {}
  ~OpenedDevice() override {
    cudaSetDevice(info_.id);
    cudaStreamSynchronize(stream_);
    for (const auto& [pointer, allocated] : allocated_) cudaFree(allocated);
    cudaStreamDestroy(stream_);
  }

  const CudaDeviceInfo& Info() const override { return info_; }
  CudaStream Stream() const override { return stream_; }

  absl::StatusOr<void*> Alloc(size_t bytes) override {
    const absl::Status set = Use();
    if (!set.ok()) return set;
    void* allocated = nullptr;
    cudaError_t error = cudaMalloc(&allocated, WholePieces(bytes));
    if (error == cudaSuccess && reinterpret_cast<uintptr_t>(allocated) % kPageBytes != 0) {
      cudaFree(allocated);
      error = cudaMalloc(&allocated, WholePieces(bytes + kPageBytes));
    }
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      const absl::StatusOr<MemoryUse> use = MemoryInfo();
      return absl::ResourceExhaustedError(
          absl::StrCat("device cuda:", info_.id, ": cannot allocate ", bytes, " bytes; ",
                       use.ok() ? use->free_bytes : 0, " of ", use.ok() ? use->total_bytes : 0,
                       " bytes are free"));
    }
    const absl::Status made = FromCuda(error, "cudaMalloc");
    if (!made.ok()) return made;
    const auto address = reinterpret_cast<uintptr_t>(allocated);
    void* pointer = reinterpret_cast<void*>((address + kPageBytes - 1) / kPageBytes * kPageBytes);
    const absl::Status cleared =
        FromCuda(cudaMemsetAsync(pointer, 0, bytes, stream_), "cudaMemsetAsync");
    if (!cleared.ok()) {
      cudaFree(allocated);
      return cleared;
    }
    const std::lock_guard lock(mu_);
    allocated_[pointer] = allocated;
    return pointer;
  }

  void Free(void* pointer, size_t) override {
    if (pointer == nullptr) return;
    void* allocated = nullptr;
    {
      const std::lock_guard lock(mu_);
      const auto found = allocated_.find(pointer);
      SKEIN_CHECK_MSG(found != allocated_.end(), "freed, but not allocated here");
      allocated = found->second;
      allocated_.erase(found);
    }
    RequireCuda(cudaSetDevice(info_.id), "cudaSetDevice");
    RequireCuda(cudaFree(allocated), "cudaFree");  // waits for the work that uses it
  }

  absl::Status Copy(void* to, const void* from, size_t bytes, CopyKind kind) override {
    if (bytes == 0) return absl::OkStatus();
    const absl::Status set = Use();
    if (!set.ok()) return set;
    if (kind == CopyKind::kHostToDevice && bytes >= kStagedMin && !IsPinned(from)) {
      return CopyStaged(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
    }
    const cudaMemcpyKind cuda_kind = kind == CopyKind::kHostToDevice   ? cudaMemcpyHostToDevice
                                     : kind == CopyKind::kDeviceToHost ? cudaMemcpyDeviceToHost
                                                                       : cudaMemcpyDeviceToDevice;
    return FromCuda(cudaMemcpyAsync(to, from, bytes, cuda_kind, stream_), "cudaMemcpyAsync");
  }

  absl::Status Synchronize() override {
    const absl::Status set = Use();
    if (!set.ok()) return set;
    return FromCuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
  }

  absl::StatusOr<uint64_t> Mark() override {
    const absl::Status set = Use();
    if (!set.ok()) return set;
    return marks_.Mark();
  }

  absl::StatusOr<bool> Done(uint64_t mark) override {
    const absl::Status set = Use();
    if (!set.ok()) return set;
    return marks_.Done(mark);
  }

  absl::StatusOr<MemoryUse> MemoryInfo() override {
    const absl::Status set = Use();
    if (!set.ok()) return set;
    MemoryUse use;
    const absl::Status got =
        FromCuda(cudaMemGetInfo(&use.free_bytes, &use.total_bytes), "cudaMemGetInfo");
    if (!got.ok()) return got;
    return use;
  }

  bool IsHost() const override { return false; }

 private:
  absl::Status Use() const { return FromCuda(cudaSetDevice(info_.id), "cudaSetDevice"); }

  static bool IsPinned(const void* host) {
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, host) != cudaSuccess) {
      cudaGetLastError();
      return false;
    }
    return attributes.type != cudaMemoryTypeUnregistered;
  }

  // Through two pinned pieces: while one is on its way to the GPU, the other is filled, and of a
  // mapped file what follows is read from disk. Returns when all is staged.
  absl::Status CopyStaged(std::byte* to, const std::byte* from, size_t bytes) {
    const std::lock_guard lock(staging_mu_);
    for (size_t begin = 0, turn = 0; begin < bytes; begin += kPieceBytes, ++turn) {
      Piece& piece = pieces_[turn % 2];
      absl::Status status = piece.Open();
      if (!status.ok()) return status;
      const size_t count = std::min(kPieceBytes, bytes - begin);
      ReadAhead(from + begin + count, std::min(kPieceBytes, bytes - begin - count));
      std::memcpy(piece.memory.data(), from + begin, count);
      status = FromCuda(
          cudaMemcpyAsync(to + begin, piece.memory.data(), count, cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
      if (status.ok()) status = FromCuda(cudaEventRecord(piece.sent, stream_), "cudaEventRecord");
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Advice only: memory that is no file's, or is there already, stays as it is.
  static void ReadAhead(const std::byte* from, size_t bytes) {
    if (bytes == 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(from) / kPageBytes * kPageBytes;
    const auto end = reinterpret_cast<uintptr_t>(from) + bytes;
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
  }

  struct Piece {
    PinnedBuffer memory;
    cudaEvent_t sent = nullptr;  // the last copy out of it
    Piece() = default;
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;
    ~Piece() {
      if (sent != nullptr) cudaEventDestroy(sent);
    }
    // Until it may be filled; made at first use.
    absl::Status Open() {
      if (sent != nullptr) return FromCuda(cudaEventSynchronize(sent), "cudaEventSynchronize");
      absl::StatusOr<PinnedBuffer> made = PinnedBuffer::Allocate(kPieceBytes);
      if (!made.ok()) return made.status();
      memory = *std::move(made);
      return FromCuda(cudaEventCreateWithFlags(&sent, cudaEventDisableTiming), "cudaEventCreate");
    }
  };

  const CudaDeviceInfo info_;
  const cudaStream_t stream_;
  EventMarks marks_;
  std::mutex staging_mu_;
  Piece pieces_[2];
  std::mutex mu_;
  std::map<void*, void*> allocated_;  // page-aligned pointer → what cudaMalloc gave
};

absl::StatusOr<CudaDeviceInfo> Look(int id) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess && error != cudaErrorNoDevice) {
    cudaGetLastError();
    return absl::FailedPreconditionError(
        absl::StrCat("device: 'cuda:", id, "': CUDA cannot be used: ", cudaGetErrorString(error)));
  }
  if (id >= count) {
    cudaGetLastError();
    return absl::InvalidArgumentError(
        absl::StrCat("device: 'cuda:", id, "': this machine has ", count, " CUDA devices"));
  }
  cudaDeviceProp properties{};
  const absl::Status got =
      FromCuda(cudaGetDeviceProperties(&properties, id), "cudaGetDeviceProperties");
  if (!got.ok()) return got;
  CudaDeviceInfo info;
  info.id = id;
  info.name = properties.name;
  info.capability = properties.major * 10 + properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.block_shared_bytes = static_cast<int>(properties.sharedMemPerBlockOptin);
  const absl::Status old = CheckCapability(info, "");
  if (!old.ok()) return old;
  return info;
}

}  // namespace

absl::StatusOr<std::shared_ptr<CudaDevice>> OpenCudaDevice(std::string_view name) {
  const absl::StatusOr<int> id = ParseCudaDevice(name);
  if (!id.ok()) return id.status();
  absl::StatusOr<CudaDeviceInfo> info = Look(*id);
  if (!info.ok()) return info.status();
  absl::Status status = FromCuda(cudaSetDevice(*id), "cudaSetDevice");
  if (!status.ok()) return status;
  if (const int code = KernelImageError(); code != cudaSuccess) {
    return CheckCapability(*info, cudaGetErrorString(static_cast<cudaError_t>(code)));
  }
  cudaStream_t stream = nullptr;
  status = FromCuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  if (!status.ok()) return status;
  status = FromCuda(cudaMemGetInfo(&info->memory.free_bytes, &info->memory.total_bytes),
                    "cudaMemGetInfo");
  if (!status.ok()) return status;
  return std::make_shared<OpenedDevice>(*std::move(info), stream);
}

absl::StatusOr<PinnedBuffer> PinnedBuffer::Allocate(size_t bytes) {
  PinnedBuffer buffer;
  void* data = nullptr;
  const absl::Status made = FromCuda(cudaHostAlloc(&data, bytes, cudaHostAllocPortable),
                                     absl::StrCat("cudaHostAlloc of ", bytes, " bytes").c_str());
  if (!made.ok()) return made;
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = bytes;
  return buffer;
}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

}  // namespace skein::engine
