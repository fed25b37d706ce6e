#include "engine/comm/cuda_peer_fabric.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "engine/comm/cuda_memory.h"
#include "engine/comm/peer_link_fabric.h"
#include "engine/comm/ucx_link_fabric.h"

namespace skein::engine {
namespace {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof PeerPlace{}.handle);

using AddressRange = CUresult (*)(CUdeviceptr* base, size_t* bytes, CUdeviceptr pointer);

// Of this process, among all of the node: a process id may come again.
uint64_t ThisProcess() {
  static const uint64_t id = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  return id;
}

class CudaPeerMemory : public PeerMemory {
 public:
  explicit CudaPeerMemory(int device) : memory_(device) {}
  ~CudaPeerMemory() override {
    cudaSetDevice(memory_.device());
    if (memory_.stream() != nullptr) cudaStreamSynchronize(memory_.stream());
    for (const auto& [handle, mapped] : opened_) cudaIpcCloseMemHandle(mapped);
  }

  absl::Status Open();

  int64_t PieceBytes() const override { return memory_.PieceBytes(); }
  absl::StatusOr<std::byte*> Scratch(size_t bytes) override { return memory_.Scratch(bytes); }
  void Copy(std::byte* to, std::span<const std::byte> from) override { memory_.Copy(to, from); }
  void Sum(std::span<const void* const> sources, void* out, int64_t count, DType dtype) override {
    memory_.Sum(sources, out, count, dtype);
  }

  absl::StatusOr<PeerPlace> Export(const std::byte* data) override;
  absl::StatusOr<const std::byte*> Import(const PeerPlace& place) override;
  absl::Status Finish() override;

 private:
  CudaMemory memory_;
  AddressRange address_range_ = nullptr;
  std::map<std::string, void*> opened_;  // by process and handle
};

absl::Status CudaPeerMemory::Open() {
  absl::Status status = memory_.Open();
  if (!status.ok()) return status;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  void* entry = nullptr;
  status = AsCommStatus(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &entry, 12000,
                                                         cudaEnableDefault, &found),
                        "cudaGetDriverEntryPointByVersion");
  if (!status.ok()) return status;
  if (found != cudaDriverEntryPointSuccess || entry == nullptr) {
    return absl::UnavailableError("the CUDA driver has no cuMemGetAddressRange");
  }
  address_range_ = reinterpret_cast<AddressRange>(entry);
  return status;
}

// A handle is of a whole allocation.
absl::StatusOr<PeerPlace> CudaPeerMemory::Export(const std::byte* data) {
  absl::Status status = AsCommStatus(cudaSetDevice(memory_.device()), "cudaSetDevice");
  if (!status.ok()) return status;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  if (address_range_(&base, &bytes, address) != CUDA_SUCCESS) {
    return absl::UnavailableError("a buffer that is no memory of the device");
  }
  PeerPlace place{.process = ThisProcess(), .base = base, .offset = address - base};
  cudaIpcMemHandle_t handle{};
  status = AsCommStatus(cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(base)),
                        "cudaIpcGetMemHandle");
  if (!status.ok()) return status;
  std::memcpy(place.handle, &handle, sizeof handle);
  return place;
}

absl::StatusOr<const std::byte*> CudaPeerMemory::Import(const PeerPlace& place) {
  if (place.process == ThisProcess()) {  // whose own handles a process cannot open
    return reinterpret_cast<const std::byte*>(place.base) + place.offset;
  }
  std::string key(reinterpret_cast<const char*>(place.handle), sizeof place.handle);
  key += std::to_string(place.process);
  void*& mapped = opened_[key];
  if (mapped == nullptr) {
    absl::Status status = AsCommStatus(cudaSetDevice(memory_.device()), "cudaSetDevice");
    cudaIpcMemHandle_t handle{};
    std::memcpy(&handle, place.handle, sizeof handle);
    if (status.ok()) {
      status = AsCommStatus(
          cudaIpcOpenMemHandle(&mapped, handle, cudaIpcMemLazyEnablePeerAccess),
          "cudaIpcOpenMemHandle (ranks on different nodes, or GPUs without peer access?)");
    }
    if (!status.ok()) {
      opened_.erase(key);
      return status;
    }
  }
  return static_cast<const std::byte*>(mapped) + place.offset;
}

absl::Status CudaPeerMemory::Finish() {
  absl::Status status = AsCommStatus(cudaSetDevice(memory_.device()), "cudaSetDevice");
  if (status.ok()) {
    status = AsCommStatus(cudaStreamSynchronize(memory_.stream()), "cudaStreamSynchronize");
  }
  return memory_.error().ok() ? status : memory_.error();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Fabric>> MakeCudaPeerFabric(const UcxOptions& hosts, int device) {
  const absl::Status status = CheckCudaDevice(device);
  if (!status.ok()) return status;
  auto fabric = MakeUcxLinkFabric(hosts);
  if (!fabric.ok()) return fabric.status();
  return std::make_unique<PeerLinkFabric>(
      *std::move(fabric), [device]() -> absl::StatusOr<std::unique_ptr<PeerMemory>> {
        auto memory = std::make_unique<CudaPeerMemory>(device);
        const absl::Status opened = memory->Open();
        if (!opened.ok()) return opened;
        return memory;
      });
}

}  // namespace skein::engine
