#include "engine/cuda/emulated_backend.h"

#include "engine/cuda/cuda_ops.h"
#include "engine/device/cpu_device.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace skein::engine {
namespace {

constexpr size_t kPageBytes = 4096;

// What Alloc gives past `bytes` is not to be touched.
void Fence(const void* pointer, size_t bytes, bool closed) {
#if defined(__SANITIZE_ADDRESS__)
  const auto* end = static_cast<const std::byte*>(pointer) + bytes;
  const size_t rest = (kPageBytes - bytes % kPageBytes) % kPageBytes;
  if (closed) {
    __asan_poison_memory_region(end, rest);
  } else {
    __asan_unpoison_memory_region(end, rest);
  }
#else
  static_cast<void>(pointer), static_cast<void>(bytes), static_cast<void>(closed);
#endif
}

class EmulatedCudaDevice final : public Device {
 public:
  absl::StatusOr<void*> Alloc(size_t bytes) override {
    absl::StatusOr<void*> pointer = host_->Alloc(bytes);
    if (pointer.ok()) Fence(*pointer, bytes, true);
    return pointer;
  }
  void Free(void* pointer, size_t bytes) override {
    if (pointer != nullptr) Fence(pointer, bytes, false);
    host_->Free(pointer, bytes);
  }
  absl::Status Copy(void* to, const void* from, size_t bytes, CopyKind kind) override {
    return host_->Copy(to, from, bytes, kind);
  }
  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::StatusOr<MemoryUse> MemoryInfo() override { return host_->MemoryInfo(); }
  bool IsHost() const override { return false; }

 private:
  const std::unique_ptr<Device> host_ = MakeCpuDevice();
};

}  // namespace

std::unique_ptr<Device> MakeEmulatedCudaDevice() { return std::make_unique<EmulatedCudaDevice>(); }

std::unique_ptr<Ops> MakeEmulatedCudaOps() {
  return MakeCudaOps(MakeEmulatedCudaDevice(), nullptr, MakePlainGemm(nullptr), AttentionPolicy{},
                     [] {});
}

}  // namespace skein::engine
