// KvShape: the shape of the paged KV cache of a model.
//
// A block (of one layer) holds `block_tokens` tokens of one sequence:
//
//   [2: K then V][kv_heads][block_tokens][head_dim] elements of `dtype`
//
// so that a head's keys are contiguous. Bytes of a block are constant under tensor parallelism: a
// rank of a group of p holds kv_heads / p heads of block_tokens * p tokens in the same bytes
// (Flying Serving, KV cache adaptor), and the layout travels with the sequence (KvLayout), never
// with the pool. A group of more ranks than heads cannot cut a head: each rank holds one, p /
// kv_heads neighbours the same one (Shift Parallelism, algorithm 1), and a block has block_tokens *
// kv_heads tokens of it: bytes stay constant, capacity grows no further.
#pragma once

#include <cstdint>

#include "scheduler/vocabulary/dtype.h"
#include "scheduler/vocabulary/kv_layout.h"

namespace skein {

struct KvShape {
  int32_t num_layers = 0;
  int32_t kv_heads = 1;
  int32_t head_dim = 0;
  int32_t block_tokens = 16;  // of a block of one instance alone; TokensPerBlock: of a layout's
  DType dtype = DType::kBF16;

  int64_t BlockBytes() const {  // of one block in one layer
    return int64_t{2} * kv_heads * block_tokens * head_dim * static_cast<int64_t>(BytesOf(dtype));
  }
  int64_t BytesPerToken() const { return num_layers * BlockBytes() / block_tokens; }
  bool operator==(const KvShape&) const = default;
};

// A layout holds for any mode in which a group of `tp` ranks wrote (TP, SP or both;
// engine/parallel/shard_layout.h says which heads a rank holds). The functions after this one
// REQUIRE that it fits.
inline bool FitsHeads(KvLayout layout, const KvShape& shape) {
  return FitsHeads(layout, shape.kv_heads);
}

// Into how many parts the heads are cut.
inline int32_t HeadCuts(KvLayout layout, const KvShape& shape) {
  return HeadCuts(layout, shape.kv_heads);
}
inline int32_t TokensPerBlock(KvLayout layout, const KvShape& shape) {
  return TokensPerBlock(layout, shape.kv_heads, shape.block_tokens);
}
// Heads that one rank holds.
inline int32_t KvHeads(KvLayout layout, const KvShape& shape) {
  return shape.kv_heads / HeadCuts(layout, shape);
}

}  // namespace skein
