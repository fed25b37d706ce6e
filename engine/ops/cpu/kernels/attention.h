// AttentionUnit over the Simd of the including file: picks the way for its rows and dtype.
#pragma once

#include "engine/base/f16.h"
#include "engine/ops/cpu/kernels/attention_few.h"
#include "engine/ops/cpu/kernels/attention_tile.h"

namespace skein::engine {
namespace {

template <typename S>
void Attend(const AttentionUnit& u, std::byte* scratch) {
  // Up to so many rows, using keys in place beats packing them (ops_bench --mode=attention).
  const bool few = !u.exact_rows && u.tokens * u.group <= 2 * S::kFewRows;
  if constexpr (S::kHasPairs) {
    if (u.kv_dtype == DType::kBF16 && u.head_dim % 2 == 0) {
      return few ? AttendFew<Paired<S>>(u, scratch) : AttendTilePairs<S>(u, scratch);
    }
  }
  if (u.kv_dtype == DType::kF32) {
    return few ? AttendFew<Widened<float>>(u, scratch) : AttendTileWidened<float>(u, scratch);
  }
  if (u.kv_dtype == DType::kBF16) {
    return few ? AttendFew<Widened<BF16>>(u, scratch) : AttendTileWidened<BF16>(u, scratch);
  }
  few ? AttendFew<Widened<F16>>(u, scratch) : AttendTileWidened<F16>(u, scratch);
}

}  // namespace
}  // namespace skein::engine
