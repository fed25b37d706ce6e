// The narrow conversions between the element types (scheduler/vocabulary/dtype.h).
#pragma once

#include <bit>
#include <cstdint>

#include "scheduler/vocabulary/dtype.h"

namespace skein::engine {

using skein::BytesOf;
using skein::DType;
using skein::NameOf;

// bfloat16: the upper half of a float. Conversion rounds to nearest even and keeps NaN a NaN.
struct BF16 {
  uint16_t bits = 0;
};

constexpr float ToFloat(BF16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

constexpr BF16 ToBF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace skein::engine
