// Taking time: an emulated step sleeps until moments computed from its start, so that what it does
// meanwhile does not add up.
#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "engine/step_progress.h"

namespace skein::engine {

using DeviceTime = StepProgress::Clock::time_point;

inline DeviceTime After(DeviceTime start, double seconds) {
  return start + std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9));
}

// When the part done = `done` of `parts` of a step of `seconds` is over.
inline DeviceTime PartOf(DeviceTime start, double seconds, int64_t done, int64_t parts) {
  return After(start, seconds * static_cast<double>(done) / static_cast<double>(parts));
}

inline void SleepUntil(DeviceTime until) {
  if (until > StepProgress::Clock::now()) std::this_thread::sleep_until(until);
}

// The device's own order of work: a step begins when it was launched, or when the one before it
// ends if that is later, whenever the host's thread gets to it. So a step that was launched ahead
// follows the one before without a gap.
class DeviceStream {
 public:
  // The start of a step of `seconds`.
  DeviceTime Begin(DeviceTime launched, double seconds) {
    const DeviceTime start = std::max(launched, free_at_);
    free_at_ = After(start, seconds);
    return start;
  }
  // A ring or group step, whose start Begin did not set, has ended.
  void Ended(DeviceTime now) { free_at_ = std::max(free_at_, now); }

 private:
  DeviceTime free_at_{};
};

}  // namespace skein::engine
