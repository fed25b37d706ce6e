// BlockId: a block of one instance's KV pool.
#pragma once

#include <compare>
#include <cstdint>

namespace skein {

struct BlockId {
  int32_t value = 0;  // 0 … total - 1 (0 is an ordinary block)
  auto operator<=>(const BlockId&) const = default;
};

}  // namespace skein
