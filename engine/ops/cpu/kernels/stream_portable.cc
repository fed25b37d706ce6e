#include "engine/ops/cpu/simd/simd_portable.h"
// Over that Simd:
#include "engine/ops/cpu/kernels/kernel_parts.h"
#include "engine/ops/cpu/kernels/stream.h"

namespace skein::engine {

void StreamPortable(const StreamProduct& p, int64_t begin, int64_t end) {
  Stream<Simd>(p, begin, end);
}

}  // namespace skein::engine
