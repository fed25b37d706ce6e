// DeviceTables: small host arrays (ids, positions, block tables) as device memory. The layers of a
// step ask for the same ones again and again; contents that are still there are not sent twice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/device/device.h"

namespace skein::engine {

class DeviceTables {
 public:
  explicit DeviceTables(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~DeviceTables();
  DeviceTables(const DeviceTables&) = delete;
  DeviceTables& operator=(const DeviceTables&) = delete;

  // A device copy of `bytes`, 256-byte aligned, for work that is put on the device's queue before
  // kSlots other contents were asked for. The device runs copies and work in order, so that a
  // slot's next contents cannot overtake readers of its last. Ends the process when the device has
  // no memory left or fails: an Ops has no way to say so.
  const std::byte* Get(std::span<const std::byte> bytes);

  static constexpr size_t kSlots = 8;
  int64_t copies() const { return copies_; }

 private:
  struct Slot {
    std::vector<std::byte> contents;
    void* memory = nullptr;
    size_t capacity = 0;
    uint64_t used_at = 0;
  };
  void Fill(Slot* slot, std::span<const std::byte> bytes);

  const std::shared_ptr<Device> device_;
  Slot slots_[kSlots];
  uint64_t now_ = 0;
  int64_t copies_ = 0;
};

}  // namespace skein::engine
