// Simd (see simd_avx512.h for what it is) in the compiler's own vector types: any CPU.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/base/dtype.h"
#include "engine/base/f16.h"

#define SKEIN_INLINE inline __attribute__((always_inline))

namespace skein::engine {
namespace {

struct Simd {
  typedef float V __attribute__((vector_size(16)));
  typedef int32_t Bits __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr bool kHasPairs = false;
  static constexpr int kTileRows = 4;
  static constexpr int kStreamRows = 2;
  static constexpr int kFewRows = 2;
  static constexpr int kColumnRows = 6;
  static constexpr int kTurnedRows = 4;

  static SKEIN_INLINE V Zero() { return V{}; }
  static SKEIN_INLINE V Set(float x) { return V{x, x, x, x}; }
  static SKEIN_INLINE V Load(const float* p) {
    V x;
    __builtin_memcpy(&x, p, sizeof x);
    return x;
  }
  static SKEIN_INLINE V Load(const BF16* p) {
    return V{ToFloat(p[0]), ToFloat(p[1]), ToFloat(p[2]), ToFloat(p[3])};
  }
  static SKEIN_INLINE V Load(const F16* p) {
    return V{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]),
             static_cast<float>(p[3])};
  }
  template <typename T>
  static SKEIN_INLINE V LoadFirst(const T* p, int n) {
    T lanes[kLanes] = {};
    __builtin_memcpy(lanes, p, static_cast<size_t>(n) * sizeof(T));
    return Load(lanes);
  }
  static SKEIN_INLINE void Store(float* p, V x) { __builtin_memcpy(p, &x, sizeof x); }
  static SKEIN_INLINE void Store(BF16* p, V x) {
    for (int i = 0; i < kLanes; ++i) p[i] = ToBF16(x[i]);
  }
  static SKEIN_INLINE void Store(F16* p, V x) {
    for (int i = 0; i < kLanes; ++i) p[i] = static_cast<F16>(x[i]);
  }
  template <typename T>
  static SKEIN_INLINE void StoreFirst(T* p, V x, int n) {
    T lanes[kLanes];
    Store(lanes, x);
    __builtin_memcpy(p, lanes, static_cast<size_t>(n) * sizeof(T));
  }

  static SKEIN_INLINE V Add(V a, V b) { return a + b; }
  static SKEIN_INLINE V Sub(V a, V b) { return a - b; }
  static SKEIN_INLINE V Mul(V a, V b) { return a * b; }
  static SKEIN_INLINE V Div(V a, V b) { return a / b; }
  static SKEIN_INLINE V Max(V a, V b) { return a > b ? a : b; }
  static SKEIN_INLINE V Min(V a, V b) { return a < b ? a : b; }
  static SKEIN_INLINE V Fma(V a, V b, V c) { return a * b + c; }
  static SKEIN_INLINE float ReduceAdd(V x) { return (x[0] + x[2]) + (x[1] + x[3]); }
  static SKEIN_INLINE float ReduceMax(V x) {
    const float a = x[0] > x[1] ? x[0] : x[1];
    const float b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
  }
  static SKEIN_INLINE void ReduceFour(V a, V b, V c, V d, float* out) {
    V rows[4] = {a, b, c, d};
    Transpose(rows);
    Store(out, (rows[0] + rows[1]) + (rows[2] + rows[3]));
  }

  static SKEIN_INLINE V ReduceQuads(V a, V b, V c, V d) {
    V rows[4] = {a, b, c, d};
    Transpose(rows);
    return (rows[0] + rows[2]) + (rows[1] + rows[3]);
  }
  static SKEIN_INLINE V SplitQuads(V x) { return x; }
  static SKEIN_INLINE V SetQuad(const float* p) { return Load(p); }
  template <typename RowAt>
  static SKEIN_INLINE void LoadQuads(const RowAt& row_at, V (&r)[1]) {
    r[0] = LoadQuad(row_at);
  }
  template <typename RowAt>
  static SKEIN_INLINE V LoadQuad(const RowAt& row_at) {
    if constexpr (std::is_same_v<decltype(row_at(0)), const F16*>) return Load(row_at(0));
    return Load(reinterpret_cast<const float*>(row_at(0)));
  }
  template <typename RowAt>
  static SKEIN_INLINE V LoadFirstQuad(const RowAt& row_at, int n) {
    std::remove_cvref_t<decltype(*row_at(0))> first[8] = {};
    __builtin_memcpy(first, row_at(0), static_cast<size_t>(n) * sizeof first[0]);
    return LoadQuad([&](int) -> decltype(row_at(0)) { return first; });
  }

  static SKEIN_INLINE V ZeroBelow(V x, V at, V limit) { return at >= limit ? x : V{}; }
  static SKEIN_INLINE V AddExponent(V x, V biased) {
    return reinterpret_cast<V>(reinterpret_cast<Bits>(x) + (reinterpret_cast<Bits>(biased) << 23));
  }

  static SKEIN_INLINE void Transpose(V (&r)[4]) {
    const V a = __builtin_shuffle(r[0], r[1], Bits{0, 4, 1, 5});
    const V b = __builtin_shuffle(r[0], r[1], Bits{2, 6, 3, 7});
    const V c = __builtin_shuffle(r[2], r[3], Bits{0, 4, 1, 5});
    const V d = __builtin_shuffle(r[2], r[3], Bits{2, 6, 3, 7});
    r[0] = __builtin_shuffle(a, c, Bits{0, 1, 4, 5});
    r[1] = __builtin_shuffle(a, c, Bits{2, 3, 6, 7});
    r[2] = __builtin_shuffle(b, d, Bits{0, 1, 4, 5});
    r[3] = __builtin_shuffle(b, d, Bits{2, 3, 6, 7});
  }

  template <int kWords, typename RowAt>
  static SKEIN_INLINE void LoadTransposed(const RowAt& row_at, V (&r)[kWords]) {
    static_assert(kWords == 4);
    for (int i = 0; i < 4; ++i) __builtin_memcpy(&r[i], row_at(i), sizeof r[i]);
    Transpose(r);
  }
  static SKEIN_INLINE V WidenFirst(V pairs) {
    return reinterpret_cast<V>(reinterpret_cast<Bits>(pairs) << 16);
  }
  static SKEIN_INLINE V WidenSecond(V pairs) {
    return reinterpret_cast<V>(reinterpret_cast<Bits>(pairs) & static_cast<int32_t>(0xffff0000u));
  }
};

}  // namespace
}  // namespace skein::engine
