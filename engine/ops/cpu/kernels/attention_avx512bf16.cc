#include "engine/ops/cpu/simd/simd_avx512.h"
// Over that Simd:
#include "engine/ops/cpu/simd/simd_math.h"
// Over both:
#include "engine/ops/cpu/kernels/attention.h"
#include "engine/ops/cpu/kernels/kernel_parts.h"

namespace skein::engine {

void AttendAvx512Bf16(const AttentionUnit& unit, std::byte* scratch) {
  Attend<Simd>(unit, scratch);
}

}  // namespace skein::engine
