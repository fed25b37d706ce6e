#include "engine/ops/cpu/kernels/kernels.h"

#include "engine/ops/cpu/kernels/kernel_parts.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {

Kernels KernelsFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512Bf16:
      return {kAvx512Bf16Rows, true, StreamAvx512Bf16, kAvx512Bf16Columns, AttendAvx512Bf16};
    case CpuIsa::kAvx512:
      return {kAvx512Rows, false, StreamAvx512, kAvx512Columns, AttendAvx512};
    case CpuIsa::kAvx2:
      return {kAvx2Rows, false, StreamAvx2, kAvx2Columns, AttendAvx2};
    case CpuIsa::kPortable:
      return {kPortableRows, false, StreamPortable, kPortableColumns, AttendPortable};
    case CpuIsa::kAuto:
      break;
  }
  SKEIN_CHECK_MSG(false, "no kernels for this isa");
  return {};
}

}  // namespace skein::engine
