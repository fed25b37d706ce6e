#include "engine/ops/cpu/simd/simd_portable.h"

namespace skein::engine {
namespace {

struct DoubleSums {
  typedef double D __attribute__((vector_size(16)));
  D low = D{}, high = D{};

  SKEIN_INLINE void Add(Simd::V x) {
    low += D{x[0], x[1]};
    high += D{x[2], x[3]};
  }
  SKEIN_INLINE void Store(double* sums) const {
    __builtin_memcpy(sums, &low, sizeof low);
    __builtin_memcpy(sums + 2, &high, sizeof high);
  }
};

}  // namespace
}  // namespace skein::engine

// Over Simd and that:
#include "engine/sampling/kernels/scans.h"

namespace skein::engine {

const SamplingKernels kPortableSampling = kScans;

}  // namespace skein::engine
