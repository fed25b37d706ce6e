// Staging memory: slots of one size that a device's copies reach at full speed. Internal to this
// folder. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/copy_stream.h"

namespace skein::engine {

class PinnedSlots {
 public:
  // Allocates a slot when it is first taken; there are at most `slots_max`.
  PinnedSlots(std::shared_ptr<CopyStream> copies, size_t slot_bytes, size_t slots_max)
      : copies_(std::move(copies)), slot_bytes_(slot_bytes), slots_max_(slots_max) {}
  ~PinnedSlots();  // waits for the stream's copies
  PinnedSlots(const PinnedSlots&) = delete;
  PinnedSlots& operator=(const PinnedSlots&) = delete;

  size_t slot_bytes() const { return slot_bytes_; }

  // Null when all are taken. RESOURCE_EXHAUSTED when the host has no page-locked memory left.
  absl::StatusOr<std::byte*> Take();
  void GiveBack(std::byte* slot) { free_.push_back(slot); }  // REQUIRES: no copy uses it

 private:
  const std::shared_ptr<CopyStream> copies_;
  const size_t slot_bytes_;
  const size_t slots_max_;
  std::vector<std::byte*> all_;
  std::vector<std::byte*> free_;
};

}  // namespace skein::engine
