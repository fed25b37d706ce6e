#include "engine/ops/cpu/simd/simd_portable.h"
// Over that Simd:
#include "engine/ops/cpu/kernels/column_block.h"
#include "engine/ops/cpu/kernels/column_stream.h"
#include "engine/ops/cpu/kernels/kernel_parts.h"

namespace skein::engine {

const ColumnKernels kPortableColumns = {Simd::kColumnRows, Simd::kTurnedRows, PackColumnRows<Simd>,
                                        StreamColumns<Simd>, MultiplyColumns<Simd>};

}  // namespace skein::engine
