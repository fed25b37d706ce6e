// Simd (see simd_avx512.h for what it is) for CPUs with AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <type_traits>

#include "engine/base/dtype.h"
#include "engine/base/f16.h"

#define SKEIN_INLINE inline __attribute__((always_inline))

namespace skein::engine {
namespace {

struct Simd {
  using V = __m256;
  static constexpr int kLanes = 8;
  static constexpr bool kHasPairs = false;
  static constexpr int kTileRows = 4;
  static constexpr int kStreamRows = 2;
  static constexpr int kFewRows = 2;
  static constexpr int kColumnRows = 6;
  static constexpr int kTurnedRows = 4;

  static SKEIN_INLINE __m256i First(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  static SKEIN_INLINE V Zero() { return _mm256_setzero_ps(); }
  static SKEIN_INLINE V Set(float x) { return _mm256_set1_ps(x); }
  static SKEIN_INLINE V Load(const float* p) { return _mm256_loadu_ps(p); }
  static SKEIN_INLINE V Load(const BF16* p) { return Widen(Load128(p)); }
  static SKEIN_INLINE V Load(const F16* p) { return _mm256_cvtph_ps(Load128(p)); }
  static SKEIN_INLINE V LoadFirst(const float* p, int n) { return _mm256_maskload_ps(p, First(n)); }
  static SKEIN_INLINE V LoadFirst(const BF16* p, int n) { return Widen(LoadFirst128(p, n)); }
  static SKEIN_INLINE V LoadFirst(const F16* p, int n) {
    return _mm256_cvtph_ps(LoadFirst128(p, n));
  }
  static SKEIN_INLINE void Store(float* p, V x) { _mm256_storeu_ps(p, x); }
  static SKEIN_INLINE void Store(BF16* p, V x) { Store128(p, Narrow(x)); }
  static SKEIN_INLINE void Store(F16* p, V x) { Store128(p, ToHalf(x)); }
  static SKEIN_INLINE void StoreFirst(float* p, V x, int n) { _mm256_maskstore_ps(p, First(n), x); }
  static SKEIN_INLINE void StoreFirst(BF16* p, V x, int n) { StoreFirst128(p, Narrow(x), n); }
  static SKEIN_INLINE void StoreFirst(F16* p, V x, int n) { StoreFirst128(p, ToHalf(x), n); }

  static SKEIN_INLINE V Add(V a, V b) { return _mm256_add_ps(a, b); }
  static SKEIN_INLINE V Sub(V a, V b) { return _mm256_sub_ps(a, b); }
  static SKEIN_INLINE V Mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static SKEIN_INLINE V Div(V a, V b) { return _mm256_div_ps(a, b); }
  static SKEIN_INLINE V Max(V a, V b) { return _mm256_max_ps(a, b); }
  static SKEIN_INLINE V Min(V a, V b) { return _mm256_min_ps(a, b); }
  static SKEIN_INLINE V Fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static SKEIN_INLINE float ReduceAdd(V x) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
  }
  static SKEIN_INLINE float ReduceMax(V x) {
    __m128 top = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    top = _mm_max_ps(top, _mm_movehl_ps(top, top));
    return _mm_cvtss_f32(_mm_max_ss(top, _mm_movehdup_ps(top)));
  }
  static SKEIN_INLINE void ReduceFour(V a, V b, V c, V d, float* out) {
    const V sums = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
  }

  static SKEIN_INLINE V ReduceQuads(V a, V b, V c, V d) {
    const auto halves = [](V x, V y) {  // x: 0 + 2, 1 + 3, then y
      return Add(_mm256_blend_ps(x, y, 0xcc), _mm256_shuffle_ps(x, y, 0x4e));
    };
    const V ab = halves(a, b), cd = halves(c, d);
    return Add(_mm256_shuffle_ps(ab, cd, 0x88), _mm256_shuffle_ps(ab, cd, 0xdd));
  }
  static SKEIN_INLINE V SplitQuads(V x) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xd8));
  }
  static SKEIN_INLINE V SetQuad(const float* p) {
    return _mm256_broadcast_ps(reinterpret_cast<const __m128*>(p));
  }
  template <typename RowAt>
  static SKEIN_INLINE void LoadQuads(const RowAt& row_at, V (&r)[2]) {
    constexpr int kQuad = std::is_same_v<decltype(row_at(0)), const BF16*> ? 8 : 4;
    for (int i = 0; i < 2; ++i) r[i] = LoadQuad([&](int q) { return row_at(q) + kQuad * i; });
  }
  template <typename RowAt>
  static SKEIN_INLINE V LoadQuad(const RowAt& row_at) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(QuadBits(row_at(0))), QuadBits(row_at(1)),
                                1);
  }
  template <typename RowAt>
  static SKEIN_INLINE V LoadFirstQuad(const RowAt& row_at, int n) {
    std::remove_cvref_t<decltype(*row_at(0))> first[2][8] = {};
    for (int q = 0; q < 2; ++q) {
      __builtin_memcpy(first[q], row_at(q), static_cast<size_t>(n) * sizeof(first[0][0]));
    }
    return LoadQuad([&](int q) -> decltype(row_at(0)) { return first[q]; });
  }

  static SKEIN_INLINE V ZeroBelow(V x, V at, V limit) {
    return _mm256_and_ps(x, _mm256_cmp_ps(at, limit, _CMP_GE_OQ));
  }
  static SKEIN_INLINE V AddExponent(V x, V biased) {
    const __m256i shift = _mm256_slli_epi32(_mm256_castps_si256(biased), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), shift));
  }

  static SKEIN_INLINE void Transpose(V (&r)[8]) {
    V t[8];
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      for (int j = 0; j < 2; ++j) {
        r[i + 2 * j] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0x44);
        r[i + 2 * j + 1] = _mm256_shuffle_ps(t[i + j], t[i + j + 2], 0xee);
      }
    }
    for (int j = 0; j < 4; ++j) {
      t[j] = _mm256_permute2f128_ps(r[j], r[j + 4], 0x20);
      t[j + 4] = _mm256_permute2f128_ps(r[j], r[j + 4], 0x31);
    }
    for (int j = 0; j < 8; ++j) r[j] = t[j];
  }

  template <int kWords, typename RowAt>
  static SKEIN_INLINE void LoadTransposed(const RowAt& row_at, V (&r)[kWords]) {
    for (int block = 0; block < kWords / 4; ++block) {
      const auto half = [&](int row) {
        return _mm_loadu_ps(reinterpret_cast<const float*>(row_at(row)) + 4 * block);
      };
      V h[4];
      for (int i = 0; i < 4; ++i) {
        h[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(half(i)), half(i + 4), 1);
      }
      const V a = _mm256_unpacklo_ps(h[0], h[1]), b = _mm256_unpackhi_ps(h[0], h[1]);
      const V c = _mm256_unpacklo_ps(h[2], h[3]), d = _mm256_unpackhi_ps(h[2], h[3]);
      r[4 * block] = _mm256_shuffle_ps(a, c, 0x44);
      r[4 * block + 1] = _mm256_shuffle_ps(a, c, 0xee);
      r[4 * block + 2] = _mm256_shuffle_ps(b, d, 0x44);
      r[4 * block + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
  }
  static SKEIN_INLINE V WidenFirst(V pairs) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(pairs), 16));
  }
  static SKEIN_INLINE V WidenSecond(V pairs) {
    const __m256i mask = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000u));
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(pairs), mask));
  }

 private:
  static SKEIN_INLINE __m128 QuadBits(const float* p) { return _mm_loadu_ps(p); }
  static SKEIN_INLINE __m128 QuadBits(const BF16* p) {
    return _mm_loadu_ps(reinterpret_cast<const float*>(p));
  }
  static SKEIN_INLINE __m128 QuadBits(const F16* p) {
    return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  template <typename T>
  static SKEIN_INLINE __m128i Load128(const T* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  template <typename T>
  static SKEIN_INLINE void Store128(T* p, __m128i x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x);
  }
  // AVX2 has no 16-bit masks; only row tails come here.
  template <typename T>
  static SKEIN_INLINE __m128i LoadFirst128(const T* p, int n) {
    alignas(16) uint16_t lanes[8] = {};
    __builtin_memcpy(lanes, p, static_cast<size_t>(n) * 2);
    return _mm_load_si128(reinterpret_cast<const __m128i*>(lanes));
  }
  template <typename T>
  static SKEIN_INLINE void StoreFirst128(T* p, __m128i x, int n) {
    alignas(16) uint16_t lanes[8];
    _mm_store_si128(reinterpret_cast<__m128i*>(lanes), x);
    __builtin_memcpy(p, lanes, static_cast<size_t>(n) * 2);
  }
  static SKEIN_INLINE V Widen(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  // To nearest even; a NaN stays one.
  static SKEIN_INLINE __m128i Narrow(V x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i bias = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, bias), 16);
    const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    const __m256i chosen = _mm256_blendv_epi8(rounded, quiet, is_nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(chosen), _mm256_extracti128_si256(chosen, 1));
  }
  static SKEIN_INLINE __m128i ToHalf(V x) {
    return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

}  // namespace
}  // namespace skein::engine
