// Time of the cores: microseconds from an arbitrary origin that never goes back. Only the shells
// read a clock; within one core `now` never decreases (a smaller one is taken as the largest seen).
#pragma once

#include <cstdint>
#include <limits>

namespace skein::scheduler {

using TimeUs = int64_t;

inline constexpr TimeUs kNever = std::numeric_limits<TimeUs>::max();
inline constexpr TimeUs kMillisecondUs = 1000;
inline constexpr TimeUs kSecondUs = 1000 * 1000;

}  // namespace skein::scheduler
