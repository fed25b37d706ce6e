// The sum of several ranks' buffers, in pairs. Internal to engine/comm.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/dtype.h"

namespace skein::engine {

// out[i] = the sum of all sources[r][i] in f32, rounded once: neighbours 0 and 1, 2 and 3, … are
// added, then the sums of pairs, and so on; one that has no neighbour waits. So what 2, 4 or 8
// ranks add up, each the sum of its part in the same order, is the same bits. `out` may be one of
// the sources. The bits do not depend on the CPU.
void SumInOrder(std::span<const void* const> sources, void* out, int64_t count, DType dtype);

}  // namespace skein::engine
