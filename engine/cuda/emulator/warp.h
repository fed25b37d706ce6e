// Warp operations of the emulator: shuffles, votes, reductions, ldmatrix, mma. In CUDA's words;
// what they do is the PTX ISA's definition.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "engine/cuda/emulator/grid.h"

namespace skein::engine::simt {

enum class Shuffle { kIndex, kUp, kDown, kXor };
uint64_t ShuffleBits(Shuffle kind, uint32_t mask, uint64_t value, int operand, int width,
                     const Site& site);

uint32_t Ballot(uint32_t mask, bool vote, const Site& site);

enum class Reduction { kAdd, kMin, kMax, kAnd, kOr, kXor };
// Reduces 32-bit integers; `is_signed` matters to kMin and kMax.
uint32_t Reduce(Reduction kind, bool is_signed, uint32_t mask, uint32_t value, const Site& site);

// ldmatrix.m8n8.x<count>.shared.b16 into r[0 … count).
void LoadMatrices(uint32_t* r, int count, const void* row, bool transpose, const Site& site);

// mma.m16n8k16, f32 accumulator; the products are summed in f64 and rounded once.
void MultiplyFragments(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], bool bf16,
                       const Site& site);

template <typename T>
T ShuffleValue(Shuffle kind, uint32_t mask, T value, int operand, int width, const Site& site) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = ShuffleBits(kind, mask, bits, operand, width, site);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace skein::engine::simt

#define SKEIN_SIMT_SITE(name) \
  { name, file, line }
#define SKEIN_SIMT_HERE const char *file = __builtin_FILE(), int line = __builtin_LINE()

template <typename T>
T __shfl_sync(uint32_t mask, T value, int lane, int width = 32, SKEIN_SIMT_HERE) {
  using skein::engine::simt::Shuffle;
  return skein::engine::simt::ShuffleValue(Shuffle::kIndex, mask, value, lane, width,
                                           SKEIN_SIMT_SITE("__shfl_sync"));
}
template <typename T>
T __shfl_up_sync(uint32_t mask, T value, unsigned delta, int width = 32, SKEIN_SIMT_HERE) {
  using skein::engine::simt::Shuffle;
  return skein::engine::simt::ShuffleValue(Shuffle::kUp, mask, value, static_cast<int>(delta),
                                           width, SKEIN_SIMT_SITE("__shfl_up_sync"));
}
template <typename T>
T __shfl_down_sync(uint32_t mask, T value, unsigned delta, int width = 32, SKEIN_SIMT_HERE) {
  using skein::engine::simt::Shuffle;
  return skein::engine::simt::ShuffleValue(Shuffle::kDown, mask, value, static_cast<int>(delta),
                                           width, SKEIN_SIMT_SITE("__shfl_down_sync"));
}
template <typename T>
T __shfl_xor_sync(uint32_t mask, T value, int lanes, int width = 32, SKEIN_SIMT_HERE) {
  using skein::engine::simt::Shuffle;
  return skein::engine::simt::ShuffleValue(Shuffle::kXor, mask, value, lanes, width,
                                           SKEIN_SIMT_SITE("__shfl_xor_sync"));
}
inline uint32_t __ballot_sync(uint32_t mask, int vote, SKEIN_SIMT_HERE) {
  return skein::engine::simt::Ballot(mask, vote != 0, SKEIN_SIMT_SITE("__ballot_sync"));
}
inline int __any_sync(uint32_t mask, int vote, SKEIN_SIMT_HERE) {
  return skein::engine::simt::Ballot(mask, vote != 0, SKEIN_SIMT_SITE("__any_sync")) != 0;
}
inline int __all_sync(uint32_t mask, int vote, SKEIN_SIMT_HERE) {
  return skein::engine::simt::Ballot(mask, vote != 0, SKEIN_SIMT_SITE("__all_sync")) == mask;
}
inline void __syncwarp(uint32_t mask = 0xffffffffu, SKEIN_SIMT_HERE) {
  skein::engine::simt::Ballot(mask, false, SKEIN_SIMT_SITE("__syncwarp"));
}
#define SKEIN_SIMT_REDUCE(name, kind)                                                             \
  template <typename T>                                                                           \
  T name(uint32_t mask, T value, SKEIN_SIMT_HERE) {                                               \
    static_assert(std::is_integral_v<T> && sizeof(T) == 4);                                       \
    return static_cast<T>(                                                                        \
        skein::engine::simt::Reduce(skein::engine::simt::Reduction::kind, std::is_signed_v<T>,    \
                                    mask, static_cast<uint32_t>(value), SKEIN_SIMT_SITE(#name))); \
  }
SKEIN_SIMT_REDUCE(__reduce_add_sync, kAdd)
SKEIN_SIMT_REDUCE(__reduce_min_sync, kMin)
SKEIN_SIMT_REDUCE(__reduce_max_sync, kMax)
SKEIN_SIMT_REDUCE(__reduce_and_sync, kAnd)
SKEIN_SIMT_REDUCE(__reduce_or_sync, kOr)
SKEIN_SIMT_REDUCE(__reduce_xor_sync, kXor)
#undef SKEIN_SIMT_REDUCE
#undef SKEIN_SIMT_SITE
#undef SKEIN_SIMT_HERE
