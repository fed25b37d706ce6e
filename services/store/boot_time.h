// The host's boot time: microseconds since it started, also while it slept. Nobody can set this
// clock, and all processes of a host read the same one.
#pragma once

#include <cstdint>

namespace skein::services {

int64_t BootTimeUs();

}  // namespace skein::services
