// DeviceInbox: the target's side of transfers to and from a device's memory. It copies the data of
// messages to the device, and data that messages ask for from it, through page-locked slots of one
// message each. Internal to engine/transport; the source's side is StagedWire. Called under the
// transport's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/device/copy_stream.h"
#include "engine/transport/device/pinned_slots.h"

namespace skein::engine {

class DeviceInbox {
 public:
  struct Place {
    std::byte* to = nullptr;
    size_t bytes = 0;
  };

  // A message has at most `message_bytes`.
  DeviceInbox(std::shared_ptr<CopyStream> copies, size_t message_bytes);

  bool IsDevice(const void* pointer) const { return copies_->IsDevice(pointer); }

  // Starts to copy `data` to the places, in order, and returns the mark of the copies; the data has
  // been read when this returns. When all slots are in use it waits for the oldest copy, which
  // takes microseconds: this wait slows the sources down.
  absl::StatusOr<uint64_t> Put(std::span<const Place> places, std::span<const std::byte> data);

  // Starts to copy `bytes` from the device to a slot, which the caller gives back. Null when no
  // slot is free.
  struct Fetched {
    std::byte* slot = nullptr;
    uint64_t mark = 0;
  };
  absl::StatusOr<Fetched> Get(const std::byte* from, size_t bytes);
  void GiveBack(std::byte* slot);

  // Whether the copies up to a mark of Put or Get are done. A failed copy counts as done, and the
  // inbox then reports `failed`.
  bool Done(uint64_t mark);
  bool failed() const { return failed_; }

  // Waits for all copies.
  void Drain() { (void)AwaitCopies(copies_.get()); }

 private:
  struct Under {
    uint64_t mark = 0;
    std::byte* slot = nullptr;
  };

  absl::StatusOr<std::byte*> SlotForPut();
  void Reclaim();

  const std::shared_ptr<CopyStream> copies_;
  PinnedSlots slots_;
  std::deque<Under> puts_;
  size_t gets_ = 0;
  bool failed_ = false;
};

}  // namespace skein::engine
