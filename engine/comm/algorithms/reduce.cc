#include "engine/comm/algorithms/reduce.h"

#include <algorithm>

#include "engine/base/f16.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

constexpr int64_t kBlock = 512;  // its f32 sums stay in the caches
constexpr int kLevels = 13;      // sums that wait for a neighbour, among 4096 sources

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
  float waiting[kLevels][kBlock];
  for (int64_t start = 0; start < count; start += kBlock) {
    const int64_t n = std::min(kBlock, count - start);
    int depth = 0;
    const auto add_last_two = [&] {
      --depth;
      for (int64_t i = 0; i < n; ++i) waiting[depth - 1][i] += waiting[depth][i];
    };
    for (size_t s = 0; s < sources.size(); ++s) {
      const T* const values = static_cast<const T*>(sources[s]) + start;
      for (int64_t i = 0; i < n; ++i) waiting[depth][i] = Widen(values[i]);
      ++depth;
      for (size_t rest = s; rest % 2 == 1; rest /= 2) add_last_two();
    }
    while (depth > 1) add_last_two();
    T* const place = static_cast<T*>(out) + start;
    for (int64_t i = 0; i < n; ++i) place[i] = Narrow<T>(waiting[0][i]);
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
  SKEIN_CHECK(!sources.empty() && sources.size() < size_t{1} << (kLevels - 1));
#if defined(__x86_64__)
  if (HasAvx2()) return SumAvx2(sources, out, count, dtype);
#endif
  Sum(sources, out, count, dtype);
}

}  // namespace skein::engine
