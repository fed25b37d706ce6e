#include "engine/cuda/device/cuda_peer_opener.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/cuda/device/cuda_check.h"
#include "engine/cuda/device/cuda_device.h"

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

absl::Status Unavailable(cudaError_t error, const char* what) {
  const absl::Status status = FromCuda(error, what);
  return status.ok() ? status : absl::UnavailableError(status.message());
}

using Handle = std::array<char, sizeof(cudaIpcMemHandle_t)>;
using Key = std::tuple<int, uint64_t, Handle>;  // device, process, handle

struct Opened {
  std::byte* base = nullptr;
  size_t count = 0;
};

// All that this process has open: a handle is opened once for all callers. The lock is held while
// CUDA opens and closes, so that no handle is opened while it is being closed.
struct Table {
  std::mutex mu;
  std::map<Key, Opened> opened;
};

Table& TheTable() {
  static Table* const table = new Table;  // outlives its last user
  return *table;
}

void Close(const Key& key) {
  Table& table = TheTable();
  const std::lock_guard lock(table.mu);
  const auto at = table.opened.find(key);
  if (--at->second.count > 0) return;
  (void)FromCuda(cudaSetDevice(std::get<int>(key)), "cudaSetDevice");
  (void)FromCuda(cudaIpcCloseMemHandle(at->second.base), "cudaIpcCloseMemHandle");
  table.opened.erase(at);
}

class CudaPeerOpener final : public PeerOpener {
 public:
  // `device` keeps the GPU open.
  CudaPeerOpener(std::shared_ptr<CudaDevice> device, AddressRange address_range)
      : device_(std::move(device)), address_range_(address_range) {}

  std::string Name() const override { return "cuda-ipc"; }
  uint64_t Process() const override { return ThisProcess(); }
  absl::StatusOr<PeerPlace> Export(const void* data) override;
  absl::StatusOr<std::shared_ptr<std::byte>> Open(const PeerPlace& place) override;

 private:
  int Id() const { return device_->Info().id; }
  absl::StatusOr<std::byte*> OpenOwn(const PeerPlace& place) const;
  absl::StatusOr<std::byte*> OpenHandle(const PeerPlace& place) const;

  const std::shared_ptr<CudaDevice> device_;
  const AddressRange address_range_;
};

// A handle is of a whole allocation.
absl::StatusOr<PeerPlace> CudaPeerOpener::Export(const void* data) {
  absl::Status status = Unavailable(cudaSetDevice(Id()), "cudaSetDevice");
  if (!status.ok()) return status;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  const auto address = reinterpret_cast<CUdeviceptr>(data);
  if (address_range_(&base, &bytes, address) != CUDA_SUCCESS) {
    return absl::UnavailableError("no memory of the device");
  }
  cudaIpcMemHandle_t handle{};
  status = Unavailable(cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(base)),
                       "cudaIpcGetMemHandle");
  if (!status.ok()) return status;
  PeerPlace place{.process = ThisProcess(),
                  .allocation = base,
                  .allocation_bytes = bytes,
                  .offset = address - base};
  std::memcpy(place.handle, &handle, sizeof handle);
  return place;
}

// A process cannot open its own handles, and need not: but only memory of this GPU is within reach
// of its kernels for certain.
absl::StatusOr<std::byte*> CudaPeerOpener::OpenOwn(const PeerPlace& place) const {
  absl::Status status = Unavailable(cudaSetDevice(Id()), "cudaSetDevice");
  if (!status.ok()) return status;
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  if (address_range_(&begin, &bytes, place.allocation) != CUDA_SUCCESS ||
      begin != place.allocation || bytes != place.allocation_bytes) {
    return absl::UnavailableError("no allocation of this process");
  }
  auto* const base = reinterpret_cast<std::byte*>(place.allocation);
  cudaPointerAttributes attributes{};
  status = Unavailable(cudaPointerGetAttributes(&attributes, base), "cudaPointerGetAttributes");
  if (!status.ok()) return status;
  if (attributes.type != cudaMemoryTypeDevice || attributes.device != Id()) {
    return absl::UnavailableError("memory of another GPU of this process");
  }
  return base;
}

absl::StatusOr<std::byte*> CudaPeerOpener::OpenHandle(const PeerPlace& place) const {
  absl::Status status = Unavailable(cudaSetDevice(Id()), "cudaSetDevice");
  if (!status.ok()) return status;
  cudaIpcMemHandle_t handle{};
  std::memcpy(&handle, place.handle, sizeof handle);
  void* base = nullptr;
  status = Unavailable(cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess),
                       "cudaIpcOpenMemHandle (another node, or GPUs without peer access?)");
  if (!status.ok()) return status;
  // The owner said how large it is; if the driver knows the size, that one counts.
  CUdeviceptr mapped = 0;
  size_t bytes = 0;
  const bool known =
      address_range_(&mapped, &bytes, reinterpret_cast<CUdeviceptr>(base)) == CUDA_SUCCESS;
  if (known && bytes < place.allocation_bytes) {
    (void)FromCuda(cudaIpcCloseMemHandle(base), "cudaIpcCloseMemHandle");
    return absl::UnavailableError(
        absl::StrCat("an allocation of ", bytes, " bytes that claims ", place.allocation_bytes));
  }
  return static_cast<std::byte*>(base);
}

absl::StatusOr<std::shared_ptr<std::byte>> CudaPeerOpener::Open(const PeerPlace& place) {
  if (place.offset >= place.allocation_bytes) {
    return absl::UnavailableError("an address behind the end of its allocation");
  }
  if (place.process == ThisProcess()) {
    const auto own = OpenOwn(place);
    if (!own.ok()) return own.status();
    return std::shared_ptr<std::byte>(*own + place.offset, [](std::byte*) {});
  }
  Handle handle;
  std::memcpy(handle.data(), place.handle, sizeof handle);
  const Key key(Id(), place.process, handle);
  Table& table = TheTable();
  const std::lock_guard lock(table.mu);
  auto at = table.opened.find(key);
  if (at == table.opened.end()) {
    const auto base = OpenHandle(place);
    if (!base.ok()) return base.status();
    at = table.opened.emplace(key, Opened{*base, 0}).first;
  }
  ++at->second.count;
  return std::shared_ptr<std::byte>(at->second.base + place.offset,
                                    [key, device = device_](std::byte*) { Close(key); });
}

absl::StatusOr<AddressRange> FindAddressRange() {
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  void* entry = nullptr;
  const absl::Status status =
      Unavailable(cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &entry, 12000,
                                                   cudaEnableDefault, &found),
                  "cudaGetDriverEntryPointByVersion");
  if (!status.ok()) return status;
  if (found != cudaDriverEntryPointSuccess || entry == nullptr) {
    return absl::UnavailableError("the CUDA driver has no cuMemGetAddressRange");
  }
  return reinterpret_cast<AddressRange>(entry);
}

}  // namespace

absl::StatusOr<std::shared_ptr<PeerOpener>> MakeCudaPeerOpener(std::string_view name) {
  const absl::StatusOr<std::shared_ptr<CudaDevice>> device = OpenCudaDevice(name);
  if (!device.ok()) return device.status();
  int has_ipc = 0;
  const absl::Status asked = Unavailable(
      cudaDeviceGetAttribute(&has_ipc, cudaDevAttrIpcEventSupport, (*device)->Info().id),
      "cudaDeviceGetAttribute");
  if (!asked.ok()) return asked;
  if (has_ipc == 0) return absl::UnavailableError("the GPU has no IPC");
  const absl::StatusOr<AddressRange> address_range = FindAddressRange();
  if (!address_range.ok()) return address_range.status();
  return std::make_shared<CudaPeerOpener>(*device, *address_range);
}

}  // namespace skein::engine
