// A step on a device whose work comes later: its layers are marked behind the device's work, and it
// ends once the device has done what it was asked for so far.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "engine/device/device.h"
#include "engine/step_progress.h"

namespace skein::engine {

class DeviceDone {
 public:
  // Both outlive this. `progress` may be null.
  DeviceDone(Device* device, StepProgress* progress) : device_(device), progress_(progress) {}

  // What a layer loop calls when it has given the work of a layer's KV to the device; null if
  // nobody asks for layers.
  std::function<void(int layer)> Marks() const {
    if (progress_ == nullptr || !progress_->tells_layers()) return nullptr;
    return [this](int layer) { progress_->Queue(layer, device_); };
  }

  // `ended` when the device has done all of the step, also of one that failed; the device's error
  // when that was OK.
  absl::Status End(absl::Status ended) {
    const absl::Status waited = device_->Synchronize();
    if (progress_ != nullptr) progress_->End(ended.ok() && waited.ok());
    return ended.ok() ? waited : ended;
  }

 private:
  Device* const device_;
  StepProgress* const progress_;
};

}  // namespace skein::engine
