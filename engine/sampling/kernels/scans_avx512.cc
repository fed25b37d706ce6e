#include "engine/ops/cpu/simd/simd_avx512.h"

namespace skein::engine {
namespace {

struct DoubleSums {
  __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();

  SKEIN_INLINE void Add(__m512 x) {
    low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(x)));
    high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1)));
  }
  SKEIN_INLINE void Store(double* sums) const {
    _mm512_storeu_pd(sums, low);
    _mm512_storeu_pd(sums + 8, high);
  }
};

}  // namespace
}  // namespace skein::engine

// Over Simd and that:
#include "engine/sampling/kernels/scans.h"

namespace skein::engine {

const SamplingKernels kAvx512Sampling = kScans;

}  // namespace skein::engine
