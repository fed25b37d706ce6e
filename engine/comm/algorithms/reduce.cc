#include "engine/comm/algorithms/reduce.h"

#include <algorithm>

#include "engine/base/f16.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr int64_t kBlock = 1024;  // its f32 sums stay in the L1 cache

inline float Widen(float value) { return value; }
inline float Widen(BF16 value) { return ToFloat(value); }
inline float Widen(F16 value) { return static_cast<float>(value); }

template <typename T>
inline T Narrow(float value) {
  return static_cast<T>(value);
}
template <>
inline BF16 Narrow<BF16>(float value) {
  return ToBF16(value);
}

template <typename T>
[[gnu::always_inline]] inline void SumBlocks(std::span<const void* const> sources, void* out,
                                             int64_t count) {
  float sums[kBlock];
  for (int64_t start = 0; start < count; start += kBlock) {
    const int64_t n = std::min(kBlock, count - start);
    const T* const first = static_cast<const T*>(sources[0]) + start;
    for (int64_t i = 0; i < n; ++i) sums[i] = Widen(first[i]);
    for (const void* source : sources.subspan(1)) {
      const T* const values = static_cast<const T*>(source) + start;
      for (int64_t i = 0; i < n; ++i) sums[i] += Widen(values[i]);
    }
    T* const place = static_cast<T*>(out) + start;
    for (int64_t i = 0; i < n; ++i) place[i] = Narrow<T>(sums[i]);
  }
}

[[gnu::always_inline]] inline void Sum(std::span<const void* const> sources, void* out,
                                       int64_t count, DType dtype) {
  if (dtype == DType::kF32) return SumBlocks<float>(sources, out, count);
  if (dtype == DType::kBF16) return SumBlocks<BF16>(sources, out, count);
  SumBlocks<F16>(sources, out, count);
}

// Conversions and sums are exact operations of IEEE 754: both versions give the same bits.
#if defined(__x86_64__)
[[gnu::target("avx2,f16c")]] void SumAvx2(std::span<const void* const> sources, void* out,
                                          int64_t count, DType dtype) {
  Sum(sources, out, count, dtype);
}

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has;
}
#endif

}  // namespace

void SumInOrder(std::span<const void* const> sources, void* out, int64_t count, DType dtype) {
  SKEIN_CHECK(!sources.empty());
#if defined(__x86_64__)
  if (HasAvx2()) return SumAvx2(sources, out, count, dtype);
#endif
  Sum(sources, out, count, dtype);
}

}  // namespace skein::engine
