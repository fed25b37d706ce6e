// Device: memory of one accelerator or of the host. Implementations: cpu, cuda.
// Thread-safe. Pointers returned by Alloc belong to the caller until Free.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace skein::engine {

enum class CopyKind { kHostToDevice, kDeviceToHost, kDeviceToDevice };

// Alloc gives whole pages of so many bytes.
inline constexpr size_t kDevicePageBytes = 4096;

// What an allocation of `bytes` takes.
inline constexpr size_t DeviceBytes(size_t bytes) {
  const size_t pages = (bytes + kDevicePageBytes - 1) / kDevicePageBytes;
  return (pages > 0 ? pages : 1) * kDevicePageBytes;
}

struct MemoryUse {
  size_t total_bytes = 0;
  size_t free_bytes = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // At least `bytes`, aligned to 4096, contents zero. RESOURCE_EXHAUSTED names the bytes wanted and
  // the bytes free.
  virtual absl::StatusOr<void*> Alloc(size_t bytes) = 0;
  virtual void Free(void* pointer, size_t bytes) = 0;
  // Ordered with the device's other work; complete for the host after Synchronize.
  virtual absl::Status Copy(void* to, const void* from, size_t bytes, CopyKind kind) = 0;
  virtual absl::Status Synchronize() = 0;
  // Stands for all work given to the device so far; grows. Marks nothing else, and does not wait.
  virtual absl::StatusOr<uint64_t> Mark() = 0;
  // Whether the device has done what `mark` stands for. Never waits.
  virtual absl::StatusOr<bool> Done(uint64_t mark) = 0;
  virtual absl::StatusOr<MemoryUse> MemoryInfo() = 0;
  // Whether the host reads and writes the memory through the pointers; else only Copy does.
  virtual bool IsHost() const = 0;
};

}  // namespace skein::engine
