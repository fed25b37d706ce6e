// AttentionUnit over the Simd of the including file: picks the way for its rows and dtype.
#pragma once

#include "engine/base/f16.h"
#include "engine/ops/cpu/kernels/attention_chains.h"
#include "engine/ops/cpu/kernels/attention_few.h"
#include "engine/ops/cpu/kernels/attention_tile.h"

namespace skein::engine {
namespace {

// Up to so many rows, using keys in place beats packing them (ops_bench --mode=attention, measured
// without exact_rows).
template <typename S>
SKEIN_INLINE bool IsFew(const AttentionUnit& u) {
  return u.tokens * u.group <= 2 * S::kFewRows;
}

template <typename Kv>
void AttendWidened(const AttentionUnit& u, std::byte* scratch) {
  if (!IsFew<Simd>(u)) return AttendTileWidened<Kv>(u, scratch);
  u.exact_rows ? AttendFew<WidenedChains<Kv>>(u, scratch)
               : AttendFew<InPlace<Widened<Kv>>>(u, scratch);
}

template <typename S>
void AttendPairs(const AttentionUnit& u, std::byte* scratch) {
  if (!IsFew<S>(u)) return AttendTilePairs<S>(u, scratch);
  u.exact_rows ? AttendFew<PairChains<S>>(u, scratch) : AttendFew<InPlace<Paired<S>>>(u, scratch);
}

template <typename S>
void Attend(const AttentionUnit& u, std::byte* scratch) {
  if constexpr (S::kHasPairs) {
    if (u.kv_dtype == DType::kBF16 && u.head_dim % 2 == 0) return AttendPairs<S>(u, scratch);
  }
  if (u.kv_dtype == DType::kF32) return AttendWidened<float>(u, scratch);
  if (u.kv_dtype == DType::kBF16) return AttendWidened<BF16>(u, scratch);
  AttendWidened<F16>(u, scratch);
}

}  // namespace
}  // namespace skein::engine
