#include "engine/ops/cpu/simd/simd_avx2.h"

namespace skein::engine {
namespace {

struct DoubleSums {
  __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();

  SKEIN_INLINE void Add(__m256 x) {
    low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(x)));
    high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1)));
  }
  SKEIN_INLINE void Store(double* sums) const {
    _mm256_storeu_pd(sums, low);
    _mm256_storeu_pd(sums + 4, high);
  }
};

}  // namespace
}  // namespace skein::engine

// Over Simd and that:
#include "engine/sampling/kernels/scans.h"

namespace skein::engine {

const SamplingKernels kAvx2Sampling = kScans;

}  // namespace skein::engine
