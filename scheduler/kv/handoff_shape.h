// HandoffShape: what both ends of a handoff must agree on, and block arithmetic. The layout is part
// of it: how many tokens a block holds depends on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "scheduler/vocabulary/kv_layout.h"
#include "scheduler/vocabulary/kv_shape.h"

namespace skein::scheduler {

// Version of the layout within a block and of the handoff messages. Increase it when either
// changes; builds with different versions refuse each other at registration.
inline constexpr uint32_t kKvFormat = 1;

struct HandoffShape : KvShape {
  std::string model_hash;
  KvLayout layout;
  uint32_t kv_format = kKvFormat;

  bool operator==(const HandoffShape&) const = default;
};

inline int64_t TokensPerBlock(const HandoffShape& shape) {
  return skein::TokensPerBlock(shape.layout, shape);
}

// Number of blocks for `tokens` tokens.
inline int64_t BlocksOf(const HandoffShape& shape, int64_t tokens) {
  return (tokens + TokensPerBlock(shape) - 1) / TokensPerBlock(shape);
}

// Bytes that a handoff moves per layer: each block with prompt tokens, whole, once.
inline int64_t HandoffBytesPerLayer(const HandoffShape& shape, int64_t prompt_tokens) {
  return BlocksOf(shape, prompt_tokens) * shape.BlockBytes();
}

// FAILED_PRECONDITION "layout.tp: decode 2, prefill 1".
absl::Status CheckSameLayout(const KvLayout& a, const KvLayout& b, std::string_view a_name,
                             std::string_view b_name);

// FAILED_PRECONDITION naming the first differing field with both values, such as "dtype: prefill
// f32, decode bf16".
absl::Status CheckSameShape(const HandoffShape& a, const HandoffShape& b,
                            std::string_view a_name = "prefill",
                            std::string_view b_name = "decode");

}  // namespace skein::scheduler
