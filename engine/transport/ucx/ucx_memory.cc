#include "engine/transport/ucx/ucx_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skein::engine {
namespace {

constexpr uint64_t kDeviceMapping = uint64_t{1} << 63;  // set in handles of a device's memory

// Fewer faults at first touch; shared memory gives large pages only on request, if at all.
void AdviseHugePages(void* base, size_t bytes) { madvise(base, bytes, MADV_HUGEPAGE); }

std::string PackKey(uint64_t mapping, std::string_view rkey) {
  std::string key(sizeof mapping, '\0');
  std::memcpy(key.data(), &mapping, sizeof mapping);
  return key.append(rkey);
}

}  // namespace

void UcxMemory::UnmapAll() {
  while (!mappings_.empty()) Unmap(mappings_.begin()->first);
}

absl::StatusOr<WireMapping> UcxMemory::Map(void* base, size_t bytes) {
  if (base == nullptr) return Allocate(bytes);
  const bool device = inbox_ != nullptr && inbox_->IsDevice(base);
  const uint64_t handle = next_handle_++ | (device ? kDeviceMapping : 0);
  mappings_[handle] = {.base = static_cast<std::byte*>(base), .bytes = bytes};
  return WireMapping{handle, static_cast<std::byte*>(base), PackKey(handle, "")};
}

absl::StatusOr<WireMapping> UcxMemory::Allocate(size_t bytes) {
  Mapping mapping{.bytes = bytes, .own = !shared_};
  if (shared_) {
    mapping.shared = SharedRegion::Allocate(bytes);
    if (mapping.shared != nullptr) mapping.base = mapping.shared->base();
  } else {
    void* const base =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base != MAP_FAILED) mapping.base = static_cast<std::byte*>(base);
  }
  if (mapping.base == nullptr) return absl::ResourceExhaustedError("no memory for a region");
  AdviseHugePages(mapping.base, bytes);
  const uint64_t handle = next_handle_++;
  WireMapping made{handle, mapping.base,
                   PackKey(handle, shared_ ? mapping.shared->name() : std::string())};
  mappings_.emplace(handle, std::move(mapping));
  return made;
}

void UcxMemory::Unmap(uint64_t mapping) {
  const auto found = mappings_.find(mapping);
  if (IsDeviceMapping(mapping)) inbox_->Drain();
  if (found->second.own) munmap(found->second.base, found->second.bytes);
  mappings_.erase(found);
}

std::byte* UcxMemory::Place(uint64_t mapping, uint64_t address, uint64_t bytes) const {
  const auto found = mappings_.find(mapping);
  if (found == mappings_.end()) return nullptr;
  const uint64_t offset = address - reinterpret_cast<uint64_t>(found->second.base);
  if (offset > found->second.bytes || bytes > found->second.bytes - offset) return nullptr;
  return found->second.base + offset;
}

bool UcxMemory::FitsRegions(std::span<const Fragment> fragments, size_t bytes) const {
  for (const Fragment& fragment : fragments) {
    if (fragment.bytes > bytes) return false;
    if (Place(fragment.mapping, fragment.address, fragment.bytes) == nullptr) return false;
    bytes -= fragment.bytes;
  }
  return bytes == 0;
}

bool UcxMemory::Scatter(std::span<const Fragment> fragments, std::span<const std::byte> data,
                        uint64_t* mark) const {
  *mark = 0;
  if (!FitsRegions(fragments, data.size())) return false;
  std::vector<DeviceInbox::Place> far;  // fragments of a device since the last one of the host
  size_t far_bytes = 0;
  const auto send_far = [&] {
    if (far.empty()) return true;
    const absl::StatusOr<uint64_t> put = inbox_->Put(far, data.first(far_bytes));
    if (put.ok()) *mark = *put;
    data = data.subspan(far_bytes);
    far_bytes = 0;
    far.clear();
    return put.ok();
  };
  for (const auto& [mapping, address, bytes] : fragments) {
    std::byte* const place = Place(mapping, address, bytes);
    if (IsDeviceMapping(mapping)) {
      far.push_back({place, bytes});
      far_bytes += bytes;
      continue;
    }
    if (!send_far()) return false;
    std::memcpy(place, data.data(), bytes);
    data = data.subspan(bytes);
  }
  return send_far();
}

bool IsDeviceMapping(uint64_t mapping) { return (mapping & kDeviceMapping) != 0; }

absl::StatusOr<Imported> ImportRegion(const Endpoint& endpoint, const DescribedRegion& region) {
  Imported imported;
  if (region.key.size() < sizeof imported.mapping) {
    return absl::InvalidArgumentError("transport description: not a UCX key");
  }
  imported.address = region.address;
  std::memcpy(&imported.mapping, region.key.data(), sizeof imported.mapping);
  // What follows a device's handle is not for this wire.
  if (!endpoint.near || IsDeviceMapping(imported.mapping)) return imported;
  const std::string name = region.key.substr(sizeof imported.mapping);
  if (name.empty()) return imported;
  imported.shared = SharedRegion::Map(endpoint.process, name, region.bytes);
  if (imported.shared != nullptr) {
    AdviseHugePages(imported.shared->base(), region.bytes);
    imported.mapped = imported.shared->base();
  }
  return imported;
}

}  // namespace skein::engine
