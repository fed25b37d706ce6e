#include "engine/ops/cpu/simd/simd_avx512.h"
// Over that Simd:
#include "engine/ops/cpu/simd/simd_math.h"
// Over both:
#include "engine/ops/cpu/kernels/kernel_parts.h"
#include "engine/ops/cpu/kernels/rows.h"

namespace skein::engine {

const RowKernels kAvx512Bf16Rows = {ConvertRow, RmsNormRow, RopeHead, SwiGluRow, AddRow, MixRow};

}  // namespace skein::engine
