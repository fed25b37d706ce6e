// BlockId: a block of one instance's KV pool.
#pragma once

#include <compare>
#include <cstdint>
#include <span>

namespace skein {

struct BlockId {
  int32_t value = 0;  // 0 … total - 1 (0 is an ordinary block)
  auto operator<=>(const BlockId&) const = default;
};

// The same table as plain numbers, as kernels read it; no copy.
inline std::span<const int32_t> NumbersOf(std::span<const BlockId> blocks) {
  static_assert(sizeof(BlockId) == sizeof(int32_t) && alignof(BlockId) == alignof(int32_t));
  return {reinterpret_cast<const int32_t*>(blocks.data()), blocks.size()};
}

}  // namespace skein
