// The cores' time: microseconds from an arbitrary origin, never decreasing. Only shells read a
// clock. A core takes a smaller `now` as the largest seen.
#pragma once

#include <cstdint>
#include <limits>

namespace skein::scheduler {

using TimeUs = int64_t;

inline constexpr TimeUs kNever = std::numeric_limits<TimeUs>::max();
inline constexpr TimeUs kMillisecondUs = 1000;
inline constexpr TimeUs kSecondUs = 1000 * 1000;

}  // namespace skein::scheduler
