#include "engine/transport/device/pinned_slots.h"

namespace skein::engine {

PinnedSlots::~PinnedSlots() {
  (void)AwaitCopies(copies_.get());
  for (std::byte* slot : all_) copies_->FreeHost(slot, slot_bytes_);
}

absl::StatusOr<std::byte*> PinnedSlots::Take() {
  if (free_.empty()) {
    if (all_.size() >= slots_max_) return nullptr;
    const absl::StatusOr<void*> slot = copies_->AllocHost(slot_bytes_);
    if (!slot.ok()) return slot.status();
    all_.push_back(static_cast<std::byte*>(*slot));
    free_.push_back(all_.back());
  }
  std::byte* const slot = free_.back();
  free_.pop_back();
  return slot;
}

}  // namespace skein::engine
