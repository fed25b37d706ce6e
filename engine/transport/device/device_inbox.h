// DeviceInbox: the target's side of transfers to and from memory of a device: what messages bring
// is copied on to the device, what they ask for is copied from it, through page-locked slots of a
// message each. Internal to this folder; the source's side is StagedWire. Under the transport's
// lock.
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

  // Messages are of at most `message_bytes`.
  DeviceInbox(std::shared_ptr<CopyStream> copies, size_t message_bytes);

  bool IsDevice(const void* pointer) const { return copies_->IsDevice(pointer); }

  // Starts to copy `data` to the places, in order; the data is read when this returns. When all
  // slots are under way it waits for the oldest, for the microseconds that a copy takes: that is
  // what holds the sources back. The mark of the copies.
  absl::StatusOr<uint64_t> Put(std::span<const Place> places, std::span<const std::byte> data);

  // Starts to copy `bytes` from the device to a slot. Null when no slot is free. The caller gives
  // the slot back.
  struct Fetched {
    std::byte* slot = nullptr;
    uint64_t mark = 0;
  };
  absl::StatusOr<Fetched> Get(const std::byte* from, size_t bytes);
  void GiveBack(std::byte* slot);

  // Of marks of Put and Get. A failed copy counts as done, and spoils the inbox: see `failed`.
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
