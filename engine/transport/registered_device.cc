#include "engine/transport/registered_device.h"

#include "absl/strings/str_cat.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {

absl::StatusOr<void*> RegisteredDevice::Alloc(size_t bytes) {
  const absl::StatusOr<MemoryUse> memory = host_->MemoryInfo();
  if (memory.ok() && bytes > memory->free_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("wanted ", bytes, " bytes, free are ", memory->free_bytes));
  }
  const absl::StatusOr<Region> region = transport_->Register(nullptr, bytes);
  if (!region.ok()) return region.status();
  std::lock_guard lock(mu_);
  regions_[region->base] = region->id;
  return region->base;
}

void RegisteredDevice::Free(void* pointer, size_t bytes) {
  std::lock_guard lock(mu_);
  const auto it = regions_.find(pointer);
  SKEIN_CHECK_MSG(it != regions_.end(), "freed memory that this device did not allocate");
  const absl::Status status = transport_->Unregister(it->second);
  SKEIN_CHECK_MSG(status.ok(), "freed memory that a transfer uses");
  regions_.erase(it);
}

RegionId RegisteredDevice::RegionAt(const void* pointer) const {
  std::lock_guard lock(mu_);
  const auto it = regions_.find(pointer);
  SKEIN_CHECK_MSG(it != regions_.end(), "no registered region begins there");
  return it->second;
}

}  // namespace skein::engine
