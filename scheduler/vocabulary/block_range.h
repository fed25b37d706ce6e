// Ranges of blocks of one instance's KV pool, and blocks whose KV is copied into others.
#pragma once

#include <cstdint>

#include "scheduler/vocabulary/block_id.h"

namespace skein {

// Blocks [first, first + count).
struct BlockRange {
  BlockId first;
  int64_t count = 0;
  bool operator==(const BlockRange&) const = default;
};

// The KV of `from`, all layers, comes into `to`.
struct BlockMove {
  BlockId from;
  BlockId to;
  bool operator==(const BlockMove&) const = default;
};

}  // namespace skein
