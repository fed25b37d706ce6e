// Simd for CPUs with AVX-512 (F, BW, DQ, VL), and with its bf16 dot product where the including
// file is compiled for that. Include only from files compiled for them.
//
// What every simd_*.h defines, in an anonymous namespace, is a struct `Simd`:
//   V            kLanes floats in a register
//   kHasPairs    whether DotPairs exists: sums of products of bf16 pairs, accumulated in f32
//   Load / LoadFirst, Store / StoreFirst   of float, BF16 and F16 (first n lanes; the rest reads 0)
//   LoadPairs / LoadFirstPairs             2 * kLanes BF16 as raw bits (kHasPairs only)
//   arithmetic, ReduceAdd, ReduceMax, ReduceFour, Transpose (kLanes x kLanes), AddExponent (for
//   exp)
//   LoadTransposed, WidenFirst, WidenSecond   words of 4 bytes, or two bf16, from rows to lanes
//   quads        four lanes side by side, quad q of row q: 16 bytes of f32 or BF16, or four F16
//   SetQuad      four words in every quad
//   LoadQuads / LoadQuad / LoadFirstQuad   kLanes / 4 quads in a row (a register each), one, or n
//                elements of one, zeros behind them; row_at(q) is a pointer to row q
//   ReduceQuads  four registers to quads of their sums: quad q is a_q, b_q, c_q, d_q, where each is
//                (lane 0 + lane 2) + (lane 1 + lane 3) of its quad
//   SplitQuads   the first two lanes of all quads, then the last two of all
// The anonymous namespace is deliberate: every kernel template instantiated with it has internal
// linkage, so the linker can never hand code compiled for this ISA to another caller.
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
  using V = __m512;
  static constexpr int kLanes = 16;
#ifdef __AVX512BF16__
  using Pairs = __m512bh;
  static constexpr bool kHasPairs = true;
#else
  static constexpr bool kHasPairs = false;
#endif
  static constexpr int kTileRows = 8;     // of a packed product: rows x 2 registers of sums
  static constexpr int kStreamRows = 6;   // of a streamed product: rows x 4 weight rows of sums
  static constexpr int kFewRows = 4;      // of decode attention: rows x 4 keys of sums
  static constexpr int kColumnRows = 12;  // of a product by quads: rows x 2 registers of sums
  static constexpr int kTurnedRows = 8;   // the same, beside the quads of two times four columns

  static SKEIN_INLINE __mmask16 First(int n) { return static_cast<__mmask16>((1u << n) - 1u); }

  static SKEIN_INLINE V Zero() { return _mm512_setzero_ps(); }
  static SKEIN_INLINE V Set(float x) { return _mm512_set1_ps(x); }
  static SKEIN_INLINE V Load(const float* p) { return _mm512_loadu_ps(p); }
  static SKEIN_INLINE V Load(const BF16* p) { return Widen(_mm256_loadu_si256(Cast(p))); }
  static SKEIN_INLINE V Load(const F16* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(Cast(p))); }
  static SKEIN_INLINE V LoadFirst(const float* p, int n) {
    return _mm512_maskz_loadu_ps(First(n), p);
  }
  static SKEIN_INLINE V LoadFirst(const BF16* p, int n) {
    return Widen(_mm256_maskz_loadu_epi16(First(n), p));
  }
  static SKEIN_INLINE V LoadFirst(const F16* p, int n) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(First(n), p));
  }
  static SKEIN_INLINE void Store(float* p, V x) { _mm512_storeu_ps(p, x); }
  static SKEIN_INLINE void Store(BF16* p, V x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), Narrow(x));
  }
  static SKEIN_INLINE void Store(F16* p, V x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), ToHalf(x));
  }
  static SKEIN_INLINE void StoreFirst(float* p, V x, int n) {
    _mm512_mask_storeu_ps(p, First(n), x);
  }
  static SKEIN_INLINE void StoreFirst(BF16* p, V x, int n) {
    _mm256_mask_storeu_epi16(p, First(n), Narrow(x));
  }
  static SKEIN_INLINE void StoreFirst(F16* p, V x, int n) {
    _mm256_mask_storeu_epi16(p, First(n), ToHalf(x));
  }

  static SKEIN_INLINE V Add(V a, V b) { return _mm512_add_ps(a, b); }
  static SKEIN_INLINE V Sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static SKEIN_INLINE V Mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static SKEIN_INLINE V Div(V a, V b) { return _mm512_div_ps(a, b); }
  static SKEIN_INLINE V Max(V a, V b) { return _mm512_max_ps(a, b); }
  static SKEIN_INLINE V Min(V a, V b) { return _mm512_min_ps(a, b); }
  static SKEIN_INLINE V Fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static SKEIN_INLINE float ReduceAdd(V x) { return _mm512_reduce_add_ps(x); }
  static SKEIN_INLINE float ReduceMax(V x) { return _mm512_reduce_max_ps(x); }

  static SKEIN_INLINE V ReduceQuads(V a, V b, V c, V d) {
    const auto halves = [](V x, V y) {  // x: 0 + 2, 1 + 3, then y
      return Add(_mm512_mask_blend_ps(0xcccc, x, y), _mm512_shuffle_ps(x, y, 0x4e));
    };
    const V ab = halves(a, b), cd = halves(c, d);
    return Add(_mm512_shuffle_ps(ab, cd, 0x88), _mm512_shuffle_ps(ab, cd, 0xdd));
  }
  static SKEIN_INLINE V SplitQuads(V x) {
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return _mm512_castpd_ps(_mm512_permutexvar_pd(order, _mm512_castps_pd(x)));
  }
  // The sums of four registers, into 4 floats.
  static SKEIN_INLINE void ReduceFour(V a, V b, V c, V d, float* out) {
    const V sums = ReduceQuads(a, b, c, d);
    const __m256 halves =
        _mm256_add_ps(_mm512_castps512_ps256(sums), _mm512_extractf32x8_ps(sums, 1));
    _mm_storeu_ps(out,
                  _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
  }

  // x where at >= limit, else 0.
  static SKEIN_INLINE V ZeroBelow(V x, V at, V limit) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(at, limit, _CMP_GE_OQ), x);
  }
  // x * 2^n, where n is the integer in the low bits of `biased` = 1.5 * 2^23 + n.
  static SKEIN_INLINE V AddExponent(V x, V biased) {
    const __m512i shift = _mm512_slli_epi32(_mm512_castps_si512(biased), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), shift));
  }

#ifdef __AVX512BF16__
  static SKEIN_INLINE Pairs LoadPairs(const BF16* p) {
    return reinterpret_cast<Pairs>(_mm512_loadu_si512(p));
  }
  static SKEIN_INLINE Pairs LoadFirstPairs(const BF16* p, int n) {  // n elements, not pairs
    const auto mask = static_cast<__mmask32>((uint64_t{1} << n) - 1u);
    return reinterpret_cast<Pairs>(_mm512_maskz_loadu_epi16(mask, p));
  }
  // One pair in every lane.
  static SKEIN_INLINE Pairs SetPair(const BF16* p) {
    int32_t bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    return reinterpret_cast<Pairs>(_mm512_set1_epi32(bits));
  }
  static SKEIN_INLINE Pairs AsPairs(V bits) { return reinterpret_cast<Pairs>(bits); }
  static SKEIN_INLINE V DotPairs(V sum, Pairs a, Pairs b) { return _mm512_dpbf16_ps(sum, a, b); }
  // Interleaves the first n ≤ 2 * kLanes elements of two rows: pair i is (even[i], odd[i]).
  static SKEIN_INLINE void LoadInterleaved(const BF16* even, const BF16* odd, int n,
                                           Pairs (&pairs)[2]) {
    const auto mask = static_cast<__mmask32>((uint64_t{1} << n) - 1u);
    const __m512i a = _mm512_maskz_loadu_epi16(mask, even);
    const __m512i b = _mm512_maskz_loadu_epi16(mask, odd);
    const __m512i low = _mm512_setr_epi32(0x200000, 0x210001, 0x220002, 0x230003, 0x240004,
                                          0x250005, 0x260006, 0x270007, 0x280008, 0x290009,
                                          0x2a000a, 0x2b000b, 0x2c000c, 0x2d000d, 0x2e000e,
                                          0x2f000f);  // element i of a, then element i of b
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    pairs[0] = reinterpret_cast<Pairs>(_mm512_permutex2var_epi16(a, low, b));
    pairs[1] = reinterpret_cast<Pairs>(_mm512_permutex2var_epi16(a, high, b));
  }
  static SKEIN_INLINE void StoreInterleaved(BF16* p, const BF16* even, const BF16* odd, int n) {
    Pairs pairs[2];
    LoadInterleaved(even, odd, n, pairs);
    _mm512_storeu_si512(p, reinterpret_cast<__m512i>(pairs[0]));
    _mm512_storeu_si512(p + 2 * kLanes, reinterpret_cast<__m512i>(pairs[1]));
  }
#endif

  static SKEIN_INLINE V SetQuad(const float* p) { return _mm512_broadcast_f32x4(_mm_loadu_ps(p)); }
  template <typename RowAt>
  static SKEIN_INLINE void LoadQuads(const RowAt& row_at, V (&r)[4]) {
    if constexpr (std::is_same_v<decltype(row_at(0)), const F16*>) {
      for (int i = 0; i < 4; ++i) r[i] = LoadQuad([&](int q) { return row_at(q) + 4 * i; });
    } else {
      const auto half = [&](int q, int i) {
        const auto* p = reinterpret_cast<const float*>(row_at(q)) + 8 * i;
        return _mm512_insertf32x8(
            _mm512_castps256_ps512(_mm256_loadu_ps(p)),
            _mm256_loadu_ps(reinterpret_cast<const float*>(row_at(q + 1)) + 8 * i), 1);
      };
      for (int i = 0; i < 2; ++i) {
        const V first = half(0, i), second = half(2, i);
        r[2 * i] = _mm512_shuffle_f32x4(first, second, 0x88);
        r[2 * i + 1] = _mm512_shuffle_f32x4(first, second, 0xdd);
      }
    }
  }
  template <typename RowAt>
  static SKEIN_INLINE V LoadQuad(const RowAt& row_at) {
    return FromQuarters([&](int q) { return QuadBits(row_at(q)); });
  }
  template <typename RowAt>
  static SKEIN_INLINE V LoadFirstQuad(const RowAt& row_at, int n) {
    return FromQuarters([&](int q) { return FirstQuadBits(row_at(q), n); });
  }

  // Lane i of r[j] becomes word j (of 4 bytes) at row_at(i), a pointer.
  template <int kWords, typename RowAt>
  static SKEIN_INLINE void LoadTransposed(const RowAt& row_at, V (&r)[kWords]) {
    for (int block = 0; block < kWords / 4; ++block) {
      const auto quarter = [&](int row) {
        return _mm_loadu_ps(reinterpret_cast<const float*>(row_at(row)) + 4 * block);
      };
      V q[4];
      for (int i = 0; i < 4; ++i) {
        q[i] = _mm512_castps128_ps512(quarter(i));
        q[i] = _mm512_mask_broadcast_f32x4(q[i], 0x00f0, quarter(i + 4));
        q[i] = _mm512_mask_broadcast_f32x4(q[i], 0x0f00, quarter(i + 8));
        q[i] = _mm512_mask_broadcast_f32x4(q[i], 0xf000, quarter(i + 12));
      }
      const V a = _mm512_unpacklo_ps(q[0], q[1]), b = _mm512_unpackhi_ps(q[0], q[1]);
      const V c = _mm512_unpacklo_ps(q[2], q[3]), d = _mm512_unpackhi_ps(q[2], q[3]);
      r[4 * block] = _mm512_shuffle_ps(a, c, 0x44);
      r[4 * block + 1] = _mm512_shuffle_ps(a, c, 0xee);
      r[4 * block + 2] = _mm512_shuffle_ps(b, d, 0x44);
      r[4 * block + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
  }
  // The first and the second bf16 of each word, widened.
  static SKEIN_INLINE V WidenFirst(V pairs) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
  }
  static SKEIN_INLINE V WidenSecond(V pairs) {
    const __m512i mask = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u));
    return _mm512_castsi512_ps(_mm512_and_si512(_mm512_castps_si512(pairs), mask));
  }

  static SKEIN_INLINE void Transpose(V (&r)[16]) {
    V t[16];
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
      for (int j = 0; j < 2; ++j) {
        const __m512d a = _mm512_castps_pd(t[i + j]), b = _mm512_castps_pd(t[i + j + 2]);
        r[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
        r[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
      }
    }
    for (int i = 0; i < 16; i += 8) {
      for (int j = 0; j < 4; ++j) {
        t[i + j] = _mm512_shuffle_f32x4(r[i + j], r[i + j + 4], 0x88);
        t[i + j + 4] = _mm512_shuffle_f32x4(r[i + j], r[i + j + 4], 0xdd);
      }
    }
    for (int j = 0; j < 8; ++j) {
      r[j] = _mm512_shuffle_f32x4(t[j], t[j + 8], 0x88);
      r[j + 8] = _mm512_shuffle_f32x4(t[j], t[j + 8], 0xdd);
    }
  }

 private:
  template <typename QuarterAt>
  static SKEIN_INLINE V FromQuarters(const QuarterAt& at) {
    V quads = _mm512_castps128_ps512(at(0));
    quads = _mm512_mask_broadcast_f32x4(quads, 0x00f0, at(1));
    quads = _mm512_mask_broadcast_f32x4(quads, 0x0f00, at(2));
    return _mm512_mask_broadcast_f32x4(quads, 0xf000, at(3));
  }
  static SKEIN_INLINE __m128 QuadBits(const float* p) { return _mm_loadu_ps(p); }
  static SKEIN_INLINE __m128 QuadBits(const BF16* p) {
    return _mm_loadu_ps(reinterpret_cast<const float*>(p));
  }
  static SKEIN_INLINE __m128 QuadBits(const F16* p) {
    return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  }
  static SKEIN_INLINE __m128 FirstQuadBits(const float* p, int n) {
    return _mm_maskz_loadu_ps(static_cast<__mmask8>(First(n)), p);
  }
  static SKEIN_INLINE __m128 FirstQuadBits(const BF16* p, int n) {
    return _mm_castsi128_ps(_mm_maskz_loadu_epi16(static_cast<__mmask8>(First(n)), p));
  }
  static SKEIN_INLINE __m128 FirstQuadBits(const F16* p, int n) {
    return _mm_cvtph_ps(_mm_maskz_loadu_epi16(static_cast<__mmask8>(First(n)), p));
  }
  template <typename T>
  static SKEIN_INLINE const __m256i* Cast(const T* p) {
    return reinterpret_cast<const __m256i*>(p);
  }
  static SKEIN_INLINE V Widen(__m256i bits) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
#ifdef __AVX512BF16__
  static SKEIN_INLINE __m256i Narrow(V x) {
    return reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x));
  }
#else
  // To nearest even; a NaN stays one.
  static SKEIN_INLINE __m256i Narrow(V x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    const __m512i bias = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, bias), 16);
    const __m512i quiet = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, quiet));
  }
#endif
  static SKEIN_INLINE __m256i ToHalf(V x) {
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

}  // namespace
}  // namespace skein::engine
