// Buckets of row counts that share a choice of algorithm: prompts and slices come in every length,
// and what is kept must not grow with them.
#pragma once

#include <bit>
#include <cstdint>

#include "engine/ops/ops.h"

namespace skein::engine {

// The largest count of the bucket of `rows`: kSkinnyRowsMax, above it four to each power of two.
// REQUIRES: rows > 0.
constexpr int64_t RowsBucket(int64_t rows) {
  if (rows <= kSkinnyRowsMax) return kSkinnyRowsMax;
  const auto step = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(rows - 1)) / 4);
  return (rows + step - 1) / step * step;
}

}  // namespace skein::engine
