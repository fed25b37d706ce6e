#include "engine/step_progress.h"

#include "absl/status/statusor.h"

namespace skein::engine {

void StepProgress::Queue(int layer, Device* device) {
  if (!tells_layers()) return;
  {
    const std::lock_guard lock(mu_);
    if (layer != layers_queued_) return;
    ++layers_queued_;
    if (device == nullptr) {
      ++layers_written_;
    } else {
      device_ = device;
      const absl::StatusOr<uint64_t> mark = device->Mark();
      marks_.push_back(mark.ok() ? std::optional<uint64_t>(*mark) : std::nullopt);
    }
  }
  queued_(layer);
}

void StepProgress::End(bool ok) {
  const std::lock_guard lock(mu_);
  if (ok) layers_written_ = layers_queued_;
  marks_.clear();
  device_ = nullptr;
}

int StepProgress::LayersQueued() const {
  const std::lock_guard lock(mu_);
  return layers_queued_;
}

int StepProgress::LayersWritten() {
  const std::lock_guard lock(mu_);
  while (!marks_.empty() && marks_.front().has_value()) {
    const absl::StatusOr<bool> done = device_->Done(*marks_.front());
    if (!done.ok() || !*done) break;
    marks_.pop_front();
    ++layers_written_;
  }
  return layers_written_;
}

}  // namespace skein::engine
