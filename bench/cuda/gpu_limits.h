// What a GPU can do, measured beside what is benched: the rate of a device copy, and of a large
// bf16 product by cuBLAS. In builds without CUDA there is none.
#pragma once

#include <memory>

#include "absl/status/statusor.h"

namespace skein::bench {

class GpuLimits {
 public:
  virtual ~GpuLimits() = default;
  // Bytes read and written a second, of a copy of 1 GiB.
  virtual double CopyBytesPerSecond() = 0;
  // The rate for 8192 x 8192 x 8192, random operands.
  virtual double GemmFlopsPerSecond() = 0;
};

// On the current device. UNAVAILABLE in builds without CUDA; RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<GpuLimits>> MakeGpuLimits();

}  // namespace skein::bench
