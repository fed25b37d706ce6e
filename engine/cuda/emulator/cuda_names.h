// The names of CUDA C++ that kernel sources use, for g++ (engine/cuda/simt/simt.h lists them).
// Vector types have CUDA's sizes and alignments. Included through simt.h only, never beside CUDA's
// headers.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)

struct alignas(8) float2 {
  float x, y;
};
struct float3 {
  float x, y, z;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)  // NOLINT: as in CUDA
      : x(x_), y(y_), z(z_) {}
};

constexpr float2 make_float2(float x, float y) { return {x, y}; }
constexpr float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
constexpr int2 make_int2(int x, int y) { return {x, y}; }
constexpr int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
constexpr uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
constexpr uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

using std::max;
using std::min;

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline int __popc(unsigned bits) { return std::popcount(bits); }
inline int __clz(int bits) { return std::countl_zero(static_cast<unsigned>(bits)); }
inline int __ffs(int bits) {
  return bits == 0 ? 0 : std::countr_zero(static_cast<unsigned>(bits)) + 1;
}
inline unsigned __brev(unsigned bits) {
  unsigned reversed = 0;
  for (int i = 0; i < 32; ++i) reversed |= ((bits >> i) & 1u) << (31 - i);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>((uint64_t{a} * b) >> 32);
}

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dmul_rn(double a, double b) { return a * b; }

template <typename T>
T __ldg(const T* p) {
  return *p;
}
template <typename T>
T __ldcg(const T* p) {
  return *p;
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// One thread of a grid runs at a time, so a plain read and write is atomic: *p becomes f(*p).
template <typename T, typename F>
T EmulatedAtomic(T* p, F f) {
  const T old = *p;
  *p = static_cast<T>(f(old));
  return old;
}
template <typename T>
T atomicAdd(T* p, T value) {
  return EmulatedAtomic(p, [=](T old) { return old + value; });
}
template <typename T>
T atomicMax(T* p, T value) {
  return EmulatedAtomic(p, [=](T old) { return std::max(old, value); });
}
template <typename T>
T atomicMin(T* p, T value) {
  return EmulatedAtomic(p, [=](T old) { return std::min(old, value); });
}
template <typename T>
T atomicExch(T* p, T value) {
  return EmulatedAtomic(p, [=](T) { return value; });
}
template <typename T>
T atomicCAS(T* p, T compare, T value) {
  return EmulatedAtomic(p, [=](T old) { return old == compare ? value : old; });
}
template <typename T>
T atomicOr(T* p, T value) {
  return EmulatedAtomic(p, [=](T old) { return old | value; });
}
template <typename T>
T atomicAnd(T* p, T value) {
  return EmulatedAtomic(p, [=](T old) { return old & value; });
}
