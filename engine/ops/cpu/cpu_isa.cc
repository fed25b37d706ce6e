#include "engine/ops/cpu/cpu_isa.h"

namespace skein::engine {

bool IsSupported(CpuIsa isa) {
  __builtin_cpu_init();
  switch (isa) {
    case CpuIsa::kAvx512Bf16:
      return IsSupported(CpuIsa::kAvx512) && __builtin_cpu_supports("avx512bf16");
    case CpuIsa::kAvx512:
      return IsSupported(CpuIsa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
    case CpuIsa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case CpuIsa::kPortable:
    case CpuIsa::kAuto:
      break;
  }
  return true;
}

CpuIsa BestIsa() {
  if (IsSupported(CpuIsa::kAvx512Bf16)) return CpuIsa::kAvx512Bf16;
  if (IsSupported(CpuIsa::kAvx512)) return CpuIsa::kAvx512;
  if (IsSupported(CpuIsa::kAvx2)) return CpuIsa::kAvx2;
  return CpuIsa::kPortable;
}

}  // namespace skein::engine
