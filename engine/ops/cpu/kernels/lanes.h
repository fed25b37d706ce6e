// Loops over a row in registers of the including file's Simd (include one simd_*.h before).
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "engine/base/f16.h"

namespace skein::engine {
namespace {

// For lambdas that are compiled anew wherever they are called.
#define SKEIN_LAMBDA __attribute__((always_inline))

// Calls body(i, n) over [0, count): n = kLanes except for a last, shorter n.
template <typename Full, typename Tail>
SKEIN_INLINE void ForLanes(int64_t count, const Full& full, const Tail& tail) {
  int64_t i = 0;
  for (; i + Simd::kLanes <= count; i += Simd::kLanes) full(i);
  if (i < count) tail(i, static_cast<int>(count - i));
}

// Calls body(typed pointer) for the dtype.
template <typename Body>
SKEIN_INLINE void WithType(const void* p, DType dtype, const Body& body) {
  if (dtype == DType::kF32) return body(static_cast<const float*>(p));
  if (dtype == DType::kBF16) return body(static_cast<const BF16*>(p));
  body(static_cast<const F16*>(p));
}

template <typename Body>
SKEIN_INLINE void WithType(void* p, DType dtype, const Body& body) {
  if (dtype == DType::kF32) return body(static_cast<float*>(p));
  if (dtype == DType::kBF16) return body(static_cast<BF16*>(p));
  body(static_cast<F16*>(p));
}

}  // namespace
}  // namespace skein::engine
