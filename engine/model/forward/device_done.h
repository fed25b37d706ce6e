// A step on a device whose work comes later: its layers are told, and it ends, once the device has
// done what it was asked for so far.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "engine/device/device.h"

namespace skein::engine {

class DeviceDone {
 public:
  // `device` outlives this.
  explicit DeviceDone(Device* device) : device_(device) {}

  // `layer_done`, or what calls it behind the device's work; null for null. Both outlive the step.
  std::function<void(int layer)> Behind(const std::function<void(int layer)>& layer_done) {
    if (!layer_done || device_->IsHost()) return layer_done;
    return [this, &layer_done](int layer) {
      if (status_.ok()) status_ = device_->Synchronize();
      if (status_.ok()) layer_done(layer);
    };
  }

  // Why layers were not told; OK if all were.
  const absl::Status& status() const { return status_; }

  // `ended` when the device has done all of the step, also of one that failed; the device's error
  // when that was OK.
  absl::Status End(absl::Status ended) {
    const absl::Status waited = device_->Synchronize();
    return ended.ok() ? waited : ended;
  }

 private:
  Device* const device_;
  absl::Status status_;
};

}  // namespace skein::engine
