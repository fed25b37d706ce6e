#include "engine/cuda/device/device_tables.h"

#include <algorithm>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr size_t kCapacityMin = 16 << 10;

}  // namespace

DeviceTables::~DeviceTables() {
  for (const Slot& slot : slots_) {
    if (slot.memory != nullptr) device_->Free(slot.memory, slot.capacity);
  }
}

const std::byte* DeviceTables::Get(std::span<const std::byte> bytes) {
  ++now_;
  Slot* oldest = &slots_[0];
  for (Slot& slot : slots_) {
    const bool same = slot.memory != nullptr && slot.contents.size() == bytes.size() &&
                      std::equal(bytes.begin(), bytes.end(), slot.contents.begin());
    if (same) {
      slot.used_at = now_;
      return static_cast<const std::byte*>(slot.memory);
    }
    if (slot.used_at < oldest->used_at) oldest = &slot;
  }
  Fill(oldest, bytes);
  oldest->used_at = now_;
  return static_cast<const std::byte*>(oldest->memory);
}

void DeviceTables::Fill(Slot* slot, std::span<const std::byte> bytes) {
  if (slot->capacity < bytes.size() || slot->memory == nullptr) {
    if (slot->memory != nullptr) device_->Free(slot->memory, slot->capacity);
    slot->capacity = std::max({kCapacityMin, bytes.size(), slot->capacity * 2});
    const absl::StatusOr<void*> memory = device_->Alloc(slot->capacity);
    SKEIN_CHECK_MSG(memory.ok(), memory.status().ToString().c_str());
    slot->memory = *memory;
  }
  slot->contents.assign(bytes.begin(), bytes.end());
  const absl::Status copied =
      device_->Copy(slot->memory, slot->contents.data(), bytes.size(), CopyKind::kHostToDevice);
  SKEIN_CHECK_MSG(copied.ok(), copied.ToString().c_str());
  ++copies_;
}

}  // namespace skein::engine
