#include "engine/transport/ucx_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "engine/transport/ucx_context.h"

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
  mappings_[handle] = {nullptr, static_cast<std::byte*>(base), bytes};
  return WireMapping{handle, static_cast<std::byte*>(base), PackKey(handle, "")};
}

absl::StatusOr<WireMapping> UcxMemory::Allocate(size_t bytes) {
  ucp_mem_map_params_t params{};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS;
  params.length = bytes;
  params.flags = UCP_MEM_MAP_ALLOCATE;
  ucp_mem_h memory = nullptr;
  auto status = FromUcs(ucp_mem_map(context_, &params, &memory), "ucp_mem_map");
  if (!status.ok()) return status;
  ucp_mem_attr_t attributes{};
  attributes.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS;
  void* key = nullptr;
  size_t key_bytes = 0;
  status = FromUcs(ucp_mem_query(memory, &attributes), "ucp_mem_query");
  if (status.ok()) {
    status = FromUcs(ucp_rkey_pack(context_, memory, &key, &key_bytes), "ucp_rkey_pack");
  }
  if (!status.ok()) {
    ucp_mem_unmap(context_, memory);
    return status;
  }
  auto* const base = static_cast<std::byte*>(attributes.address);
  AdviseHugePages(base, bytes);
  const uint64_t handle = next_handle_++;
  mappings_[handle] = {memory, base, bytes};
  WireMapping mapping{handle, base,
                      PackKey(handle, std::string_view(static_cast<const char*>(key), key_bytes))};
  ucp_rkey_buffer_release(key);
  return mapping;
}

void UcxMemory::Unmap(uint64_t mapping) {
  const auto found = mappings_.find(mapping);
  if (IsDeviceMapping(mapping)) inbox_->Drain();
  if (found->second.memory != nullptr) ucp_mem_unmap(context_, found->second.memory);
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

absl::StatusOr<Imported> ImportRegion(ucp_ep_h ep, const DescribedRegion& region) {
  Imported imported;
  if (region.key.size() < sizeof imported.mapping) {
    return absl::InvalidArgumentError("transport description: not a UCX key");
  }
  imported.address = region.address;
  std::memcpy(&imported.mapping, region.key.data(), sizeof imported.mapping);
  const std::string rkey = region.key.substr(sizeof imported.mapping);
  void* mapped = nullptr;
  if (!rkey.empty() && ucp_ep_rkey_unpack(ep, rkey.data(), &imported.rkey) == UCS_OK &&
      ucp_rkey_ptr(imported.rkey, region.address, &mapped) == UCS_OK) {
    AdviseHugePages(mapped, region.bytes);
    imported.mapped = static_cast<std::byte*>(mapped);
  }
  return imported;
}

}  // namespace skein::engine
