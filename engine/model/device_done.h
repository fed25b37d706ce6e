// layer_done on a device whose work comes later: told once the device has done what it was asked
// for so far.
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

 private:
  Device* const device_;
  absl::Status status_;
};

}  // namespace skein::engine
