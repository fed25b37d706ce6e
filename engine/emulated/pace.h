// Taking time: emulated steps sleep until moments computed from their start, so that what they do
// meanwhile does not add up. Internal to this folder.
#pragma once

#include <chrono>
#include <thread>

namespace skein::engine {

// When the part done = `done` of `parts` of a step of `seconds` is over.
inline std::chrono::steady_clock::time_point PartOf(std::chrono::steady_clock::time_point start,
                                                    double seconds, int64_t done, int64_t parts) {
  const double until = seconds * static_cast<double>(done) / static_cast<double>(parts);
  return start + std::chrono::nanoseconds(static_cast<int64_t>(until * 1e9));
}

inline void SleepUntil(std::chrono::steady_clock::time_point until) {
  if (until > std::chrono::steady_clock::now()) std::this_thread::sleep_until(until);
}

}  // namespace skein::engine
