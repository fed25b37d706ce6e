#include "engine/ops/cpu/simd/simd_avx2.h"
// Over that Simd:
#include "engine/ops/cpu/kernels/kernel_parts.h"
#include "engine/ops/cpu/kernels/stream.h"

namespace skein::engine {

void StreamAvx2(const StreamProduct& p, int64_t begin, int64_t end) { Stream<Simd>(p, begin, end); }

}  // namespace skein::engine
