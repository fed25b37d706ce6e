// The KV shape on which both ends of a handoff must agree, and block arithmetic.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace skein::scheduler {

// Version of the layout within a block and of the handoff messages. Increase it when either
// changes; builds with different versions refuse each other at registration.
inline constexpr uint32_t kKvFormat = 1;

// How a sequence's heads are split over the ranks of its group. Every message that names blocks
// carries it.
struct KvLayout {
  int32_t tp = 1;
  bool operator==(const KvLayout&) const = default;
};

struct KvShape {
  std::string model_hash;
  std::string dtype;      // "bf16", "f16", "f32"
  int32_t layout_tp = 1;  // ranks over which a sequence's heads are split
  int32_t block_tokens = 16;
  int32_t num_layers = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int64_t block_bytes = 0;  // size of one block in one layer
  uint32_t kv_format = kKvFormat;

  bool operator==(const KvShape&) const = default;
};

// Number of blocks for `tokens` tokens.
inline int64_t BlocksOf(const KvShape& shape, int64_t tokens) {
  return (tokens + shape.block_tokens - 1) / shape.block_tokens;
}

// Bytes that a handoff moves per layer: each block with prompt tokens, whole, once.
inline int64_t HandoffBytesPerLayer(const KvShape& shape, int64_t prompt_tokens) {
  return BlocksOf(shape, prompt_tokens) * shape.block_bytes;
}

inline KvLayout LayoutOf(const KvShape& shape) { return {shape.layout_tp}; }

// FAILED_PRECONDITION "layout.tp: decode 2, prefill 1".
absl::Status CheckSameLayout(const KvLayout& a, const KvLayout& b, std::string_view a_name,
                             std::string_view b_name);

// FAILED_PRECONDITION naming the first differing field with both values, such as "dtype: prefill
// f32, decode bf16".
absl::Status CheckSameShape(const KvShape& a, const KvShape& b, std::string_view a_name = "prefill",
                            std::string_view b_name = "decode");

}  // namespace skein::scheduler
