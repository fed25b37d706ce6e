// The sum of several ranks' buffers, in the order given. Internal to engine/comm.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/dtype.h"

namespace skein::engine {

// out[i] = sources[0][i] + sources[1][i] + …, summed from left to right in f32 and rounded once.
// `out` may be one of the sources. The bits do not depend on the CPU.
void SumInOrder(std::span<const void* const> sources, void* out, int64_t count, DType dtype);

}  // namespace skein::engine
