// The attention kernels for pairs of bf16 on CPUs that cannot multiply these: for tests.
#pragma once

#include <cstddef>

#include "engine/ops/cpu/kernels/kernels.h"

namespace skein::engine {

// As Kernels::attend. REQUIRES: IsSupported(kAvx512).
void AttendEmulatedPairs(const AttentionUnit& unit, std::byte* scratch);

}  // namespace skein::engine
