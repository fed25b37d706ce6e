#include "engine/ops/cpu/kernels/kernels.h"

#include "engine/ops/cpu/kernels/kernel_parts.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {

Kernels KernelsFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512Bf16:
      return {kAvx512Rows,         true,        StreamAvx512, PackTileAvx512, kBlockTileRowsAvx512,
              MultiplyBlockAvx512, AttendAvx512};
    case CpuIsa::kAvx2:
      return {kAvx2Rows,         false,     StreamAvx2, PackTileAvx2, kBlockTileRowsAvx2,
              MultiplyBlockAvx2, AttendAvx2};
    case CpuIsa::kPortable:
      return {kPortableRows,          false,
              StreamPortable,         PackTilePortable,
              kBlockTileRowsPortable, MultiplyBlockPortable,
              AttendPortable};
    case CpuIsa::kAuto:
      break;
  }
  SKEIN_CHECK_MSG(false, "no kernels for this isa");
  return {};
}

}  // namespace skein::engine
