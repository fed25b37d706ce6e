// Moves of a few neighbouring elements, widened to f32, and the choice of a kernel by dtypes. For
// .cu files only.
#pragma once

#include <cstdint>

#include "engine/base/tensor.h"
#include "engine/cuda/simt/simt.h"

namespace skein::engine {

// Elements that a vector move takes: 16 bytes of f32, 8 of a 16-bit type.
inline constexpr int kPack = 4;

template <int kCount, typename T>
__device__ __forceinline__ void LoadPack(const T* from, float (&values)[kCount]) {
  if constexpr (kCount == 1) {
    values[0] = simt::Widen(*from);
  } else if constexpr (sizeof(T) == 4) {
    const float4 pack = simt::Load<float4>(from);
    values[0] = pack.x;
    values[1] = pack.y;
    values[2] = pack.z;
    values[3] = pack.w;
  } else {
    const uint2 pack = simt::Load<uint2>(from);
    const float2 low = simt::Widen2<T>(pack.x), high = simt::Widen2<T>(pack.y);
    values[0] = low.x;
    values[1] = low.y;
    values[2] = high.x;
    values[3] = high.y;
  }
}

template <int kCount, typename T>
__device__ __forceinline__ void StorePack(T* to, const float (&values)[kCount]) {
  if constexpr (kCount == 1) {
    *to = simt::Narrow<T>(values[0]);
  } else if constexpr (sizeof(T) == 4) {
    simt::Store(to, make_float4(values[0], values[1], values[2], values[3]));
  } else {
    simt::Store(to, make_uint2(simt::Narrow2<T>(values[0], values[1]),
                               simt::Narrow2<T>(values[2], values[3])));
  }
}

__device__ __forceinline__ float WarpSum(float value) {
#pragma unroll
  for (int lanes = simt::kWarp / 2; lanes > 0; lanes /= 2) {
    value += __shfl_xor_sync(simt::kAllLanes, value, lanes);
  }
  return value;
}

__device__ __forceinline__ float WarpMax(float value) {
#pragma unroll
  for (int lanes = simt::kWarp / 2; lanes > 0; lanes /= 2) {
    value = fmaxf(value, __shfl_xor_sync(simt::kAllLanes, value, lanes));
  }
  return value;
}

template <typename T>
__device__ __forceinline__ const T* RowOf(const ConstMatrix& m, int64_t row) {
  return static_cast<const T*>(m.data) + row * m.stride;
}
template <typename T>
__device__ __forceinline__ T* RowOf(const Matrix& m, int64_t row) {
  return static_cast<T*>(m.data) + row * m.stride;
}

// Hosts: whether every row of the matrices begins where a vector move may.
template <typename... Matrices>
bool RowsAreAligned(const Matrices&... matrices) {
  const auto aligned = [](const ConstMatrix& m) {
    const size_t bytes = kPack * BytesOf(m.dtype);
    return m.cols % kPack == 0 && reinterpret_cast<uintptr_t>(m.data) % bytes == 0 &&
           (m.rows <= 1 || static_cast<size_t>(m.stride) * BytesOf(m.dtype) % bytes == 0);
  };
  return (aligned(matrices) && ...);
}

// Hosts: calls f with a value of the element type that `dtype` names.
template <typename F>
void WithElement(DType dtype, F f) {
  switch (dtype) {
    case DType::kF32:
      return f(float{});
    case DType::kBF16:
      return f(BF16{});
    case DType::kF16:
      return f(simt::Half{});
  }
}

template <int kValue>
struct Constant {
  static constexpr int value = kValue;
};

// Hosts: calls f with the number of elements a move takes.
template <typename F>
void WithPack(bool aligned, F f) {
  if (aligned) {
    f(Constant<kPack>{});
  } else {
    f(Constant<1>{});
  }
}

inline unsigned CeilDivide(int64_t a, int64_t b) { return static_cast<unsigned>((a + b - 1) / b); }

}  // namespace skein::engine
