#include "engine/ops/cpu/simd/simd_avx512.h"
// Over that Simd:
#include "engine/ops/cpu/simd/simd_math.h"
// Over both:
#include "engine/ops/cpu/kernels/attention.h"
#include "engine/ops/cpu/kernels/testing/emulated_pairs.h"

namespace skein::engine {
namespace {

// Simd with pairs of bf16 as of AVX512-BF16, but without its instructions. Sums round after each
// product, and denormals stay: other bits than the CPU's, in the same order.
struct PairSimd : Simd {
  using Pairs = __m512i;
  static constexpr bool kHasPairs = true;

  static SKEIN_INLINE Pairs LoadPairs(const BF16* p) { return _mm512_loadu_si512(p); }
  static SKEIN_INLINE Pairs LoadFirstPairs(const BF16* p, int n) {
    return _mm512_maskz_loadu_epi16(static_cast<__mmask32>((uint64_t{1} << n) - 1u), p);
  }
  static SKEIN_INLINE Pairs SetPair(const BF16* p) {
    int32_t bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    return _mm512_set1_epi32(bits);
  }
  static SKEIN_INLINE Pairs AsPairs(V bits) { return _mm512_castps_si512(bits); }
  static SKEIN_INLINE V DotPairs(V sum, Pairs a, Pairs b) {
    const V x = _mm512_castsi512_ps(a), y = _mm512_castsi512_ps(b);
    return Fma(WidenFirst(x), WidenFirst(y), Fma(WidenSecond(x), WidenSecond(y), sum));
  }
  static SKEIN_INLINE void LoadInterleaved(const BF16* even, const BF16* odd, int n,
                                           Pairs (&pairs)[2]) {
    BF16 both[4 * kLanes] = {};
    for (int i = 0; i < n; ++i) {
      both[2 * i] = even[i];
      both[2 * i + 1] = odd[i];
    }
    pairs[0] = LoadPairs(both);
    pairs[1] = LoadPairs(both + 2 * kLanes);
  }
  static SKEIN_INLINE void StoreInterleaved(BF16* p, const BF16* even, const BF16* odd, int n) {
    Pairs pairs[2];
    LoadInterleaved(even, odd, n, pairs);
    _mm512_storeu_si512(p, pairs[0]);
    _mm512_storeu_si512(p + 2 * kLanes, pairs[1]);
  }
};

}  // namespace

void AttendEmulatedPairs(const AttentionUnit& unit, std::byte* scratch) {
  Attend<PairSimd>(unit, scratch);
}

}  // namespace skein::engine
