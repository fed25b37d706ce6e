#include "engine/sampling/kernels/sampling_kernels.h"

#include "scheduler/vocabulary/check.h"

namespace skein::engine {

SamplingKernels SamplingKernelsFor(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::kAvx512Bf16:
    case CpuIsa::kAvx512:
      return kAvx512Sampling;
    case CpuIsa::kAvx2:
      return kAvx2Sampling;
    case CpuIsa::kPortable:
      return kPortableSampling;
    case CpuIsa::kAuto:
      break;
  }
  SKEIN_CHECK_MSG(false, "no kernels for this isa");
  return {};
}

}  // namespace skein::engine
