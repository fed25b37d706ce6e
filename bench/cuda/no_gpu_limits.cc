#include "bench/cuda/gpu_limits.h"

namespace skein::bench {

absl::StatusOr<std::unique_ptr<GpuLimits>> MakeGpuLimits() {
  return absl::UnavailableError("this build has no CUDA");
}

}  // namespace skein::bench
