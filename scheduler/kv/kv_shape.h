// The KV shape on which both ends of a handoff must agree, and block arithmetic. The layout is part
// of it: how many tokens a block holds depends on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "scheduler/vocabulary/kv_layout.h"

namespace skein::scheduler {

// Version of the layout within a block and of the handoff messages. Increase it when either
// changes; builds with different versions refuse each other at registration.
inline constexpr uint32_t kKvFormat = 1;

struct KvShape {
  std::string model_hash;
  std::string dtype;  // "bf16", "f16", "f32"
  KvLayout layout;
  int32_t block_tokens = 16;  // of a block of one instance alone; TokensPerBlock: of this layout's
  int32_t num_layers = 0;
  int32_t kv_heads = 1;
  int32_t head_dim = 0;
  int64_t block_bytes = 0;  // size of one block in one layer
  uint32_t kv_format = kKvFormat;

  bool operator==(const KvShape&) const = default;
};

inline int64_t TokensPerBlock(const KvShape& shape) {
  return skein::TokensPerBlock(shape.layout, shape.kv_heads, shape.block_tokens);
}

// Number of blocks for `tokens` tokens.
inline int64_t BlocksOf(const KvShape& shape, int64_t tokens) {
  return (tokens + TokensPerBlock(shape) - 1) / TokensPerBlock(shape);
}

// Bytes that a handoff moves per layer: each block with prompt tokens, whole, once.
inline int64_t HandoffBytesPerLayer(const KvShape& shape, int64_t prompt_tokens) {
  return BlocksOf(shape, prompt_tokens) * shape.block_bytes;
}

// FAILED_PRECONDITION "layout.tp: decode 2, prefill 1".
absl::Status CheckSameLayout(const KvLayout& a, const KvLayout& b, std::string_view a_name,
                             std::string_view b_name);

// FAILED_PRECONDITION naming the first differing field with both values, such as "dtype: prefill
// f32, decode bf16".
absl::Status CheckSameShape(const KvShape& a, const KvShape& b, std::string_view a_name = "prefill",
                            std::string_view b_name = "decode");

}  // namespace skein::scheduler
