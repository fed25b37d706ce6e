// Rows turned in registers, over the Simd of the including file (include one simd_*.h before): a
// row becomes a lane, so that each lane can be summed in one chain along its row.
#pragma once

#include <cstdint>
#include <type_traits>

#include "engine/ops/cpu/kernels/lanes.h"
#include "engine/ops/cpu/kernels/packed_product.h"

namespace skein::engine {
namespace {

// Elements of kLanes rows in registers: a row a lane, and one register (of units, see
// packed_product.h) for each step of a sum. kWords: 4-byte words of a row, kLanes or 4.
template <typename Units, typename From, int kWords = Simd::kLanes>
struct Turned {
  // Two bf16 to be widened come as one word; an f16 is widened as it is read.
  static constexpr bool kIsF16 = std::is_same_v<From, F16>;
  static constexpr bool kSplits = Units::kPerUnit == 1 && std::is_same_v<From, BF16>;
  static constexpr int kSteps = kWords * (kSplits ? 2 : 1);
  static constexpr int kElements = kSteps * Units::kPerUnit;

  SKEIN_INLINE Turned() {}  // holds nothing until one of the Loads
  // Lane i: kElements from row_at(i), a const From*, on.
  template <typename RowAt>
  SKEIN_INLINE void Load(const RowAt& row_at) {
    if constexpr (!kIsF16) {
      Simd::LoadTransposed(row_at, words);
    } else {
      static_assert(kWords == Simd::kLanes);
      for (int i = 0; i < kWords; ++i) words[i] = Simd::Load(row_at(i));
      Simd::Transpose(words);
    }
  }
  // The first `elements` ≤ kElements; zeros for the others, which are not read.
  template <typename RowAt>
  __attribute__((noinline)) void LoadFirst(const RowAt& row_at, int64_t elements) {
    From some[Simd::kLanes * kElements] = {};
    for (int i = 0; i < Simd::kLanes; ++i) {
      __builtin_memcpy(some + i * kElements, row_at(i),
                       static_cast<size_t>(elements) * sizeof(From));
    }
    Load([&](int i) SKEIN_LAMBDA { return some + i * kElements; });
  }
  SKEIN_INLINE Simd::V Step(int s) const {
    if constexpr (!kSplits) return words[s];
    return s % 2 == 0 ? Simd::WidenFirst(words[s / 2]) : Simd::WidenSecond(words[s / 2]);
  }
  // Calls body(step, register).
  template <typename Body>
  SKEIN_INLINE void ForSteps(const Body& body) const {
#pragma GCC unroll 32
    for (int s = 0; s < kSteps; ++s) body(s, Step(s));
  }

  Simd::V words[kWords];
};

// Calls body(a Turned to load, first element, its elements) over [0, count): whole groups of
// kLanes words, then of 4, then a last one that is not whole. Bodies are SKEIN_LAMBDA.
template <typename Units, typename From, typename Body>
SKEIN_INLINE void ForGroups(int64_t count, const Body& body) {
  using Long = Turned<Units, From>;
  int64_t i = 0;
  for (; i + Long::kElements <= count; i += Long::kElements) body(Long(), i, Long::kElements);
  if constexpr (Simd::kLanes > 4 && !Long::kIsF16) {
    using Short = Turned<Units, From, 4>;
    for (; i + Short::kElements <= count; i += Short::kElements) body(Short(), i, Short::kElements);
    if (i < count) body(Short(), i, static_cast<int>(count - i));
  } else {
    if (i < count) body(Long(), i, static_cast<int>(count - i));
  }
}

}  // namespace
}  // namespace skein::engine
