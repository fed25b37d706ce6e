#include "engine/transport/ucx/ucx_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skein::engine {
namespace {

constexpr uint64_t kDeviceMapping = uint64_t{1} << 63;  // set in handles of a device's memory

// Fewer faults at first touch; shared memory gives large pages only on request, if at all.
void AdviseHugePages(void* base, size_t bytes) { madvise(base, bytes, MADV_HUGEPAGE); }

// Of a device's memory `device`, which ends there.
std::string PackKey(uint64_t mapping, std::string_view name, std::string_view rma, bool device) {
  std::string key(sizeof mapping, '\0');
  std::memcpy(key.data(), &mapping, sizeof mapping);
  if (device) return key;
  const auto name_bytes = static_cast<uint32_t>(name.size());
  key.append(reinterpret_cast<const char*>(&name_bytes), sizeof name_bytes);
  return key.append(name).append(rma);
}

struct KeyParts {
  uint64_t mapping = 0;
  std::string name;
  std::string_view rma;
};

// What follows a device's handle is not for this wire.
std::optional<KeyParts> PartsOf(std::string_view key) {
  KeyParts parts;
  uint32_t name_bytes = 0;
  if (key.size() < sizeof parts.mapping) return std::nullopt;
  std::memcpy(&parts.mapping, key.data(), sizeof parts.mapping);
  if (IsDeviceMapping(parts.mapping)) return parts;
  key.remove_prefix(sizeof parts.mapping);
  if (key.size() < sizeof name_bytes) return std::nullopt;
  std::memcpy(&name_bytes, key.data(), sizeof name_bytes);
  key.remove_prefix(sizeof name_bytes);
  if (name_bytes > key.size()) return std::nullopt;
  parts.name = key.substr(0, name_bytes);
  parts.rma = key.substr(name_bytes);
  return parts;
}

}  // namespace

void UcxMemory::UnmapAll() {
  while (!mappings_.empty()) Unmap(mappings_.begin()->first);
}

absl::StatusOr<WireMapping> UcxMemory::Map(void* base, size_t bytes) {
  if (base == nullptr) return Allocate(bytes);
  if (inbox_ != nullptr && inbox_->IsDevice(base)) {
    const uint64_t handle = next_handle_++ | kDeviceMapping;
    mappings_[handle] = {.base = static_cast<std::byte*>(base), .bytes = bytes};
    return WireMapping{handle, static_cast<std::byte*>(base), PackKey(handle, "", "", true)};
  }
  Mapping mapping{.base = static_cast<std::byte*>(base), .bytes = bytes};
  if (rma_ != nullptr) mapping.rma = RmaMemory::Map(rma_, base, bytes);
  return Keep(std::move(mapping));
}

absl::StatusOr<WireMapping> UcxMemory::Allocate(size_t bytes) {
  Mapping mapping{.bytes = bytes};
  if (shared_) {
    mapping.shared = SharedRegion::Allocate(bytes);
    if (mapping.shared != nullptr) mapping.base = mapping.shared->base();
    if (rma_ != nullptr && mapping.base != nullptr) {
      mapping.rma = RmaMemory::Map(rma_, mapping.base, bytes);
    }
  } else if (rma_ != nullptr) {
    mapping.rma = RmaMemory::Map(rma_, nullptr, bytes);
    if (mapping.rma != nullptr) mapping.base = mapping.rma->base();
  } else {
    void* const base =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base != MAP_FAILED) mapping.base = static_cast<std::byte*>(base);
    mapping.own = true;
  }
  if (mapping.base == nullptr) return absl::ResourceExhaustedError("no memory for a region");
  AdviseHugePages(mapping.base, bytes);
  return Keep(std::move(mapping));
}

WireMapping UcxMemory::Keep(Mapping mapping) {
  const uint64_t handle = next_handle_++;
  WireMapping made{handle, mapping.base,
                   PackKey(handle, mapping.shared == nullptr ? "" : mapping.shared->name(),
                           mapping.rma == nullptr ? "" : mapping.rma->key(), false)};
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
  const std::optional<KeyParts> parts = PartsOf(region.key);
  if (!parts.has_value()) {
    return absl::InvalidArgumentError("transport description: not a UCX key");
  }
  Imported imported;
  imported.address = region.address;
  imported.mapping = parts->mapping;
  if (IsDeviceMapping(imported.mapping)) return imported;
  if (endpoint.ucx != nullptr) {
    imported.key = UnpackRemoteKey(endpoint.plane, endpoint.ucx, parts->rma, region.address);
  }
  if (!endpoint.near || parts->name.empty()) return imported;
  imported.shared = SharedRegion::Map(endpoint.process, parts->name, region.bytes);
  if (imported.shared != nullptr) {
    AdviseHugePages(imported.shared->base(), region.bytes);
    imported.mapped = imported.shared->base();
  }
  return imported;
}

}  // namespace skein::engine
