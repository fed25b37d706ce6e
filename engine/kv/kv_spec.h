// The shape of the paged KV cache: what both ends of a handoff must agree on.
//
// One region per layer, each `num_blocks` blocks of `BlockBytes()`. A block holds `block_tokens`
// tokens of one sequence:
//
//   block (one layer) = [2: K then V][kv_heads][block_tokens][head_dim] elements of `dtype`
//
// so that a head's keys are contiguous. Bytes of a block are constant under tensor parallelism: a
// rank of a group of p holds kv_heads / p heads of block_tokens * p tokens in the same bytes
// (Flying Serving, KV cache adaptor), and the layout travels with the sequence (KvLayout), never
// with the pool. A group of more ranks than heads cannot cut a head: each rank holds one, p /
// kv_heads neighbours the same one (Shift Parallelism, algorithm 1), and a block has block_tokens *
// kv_heads tokens of it: bytes stay constant, capacity grows no further.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "scheduler/vocabulary/kv_layout.h"

namespace skein::engine {

struct KvSpec {
  int num_layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int block_tokens = 16;  // tokens a block at layout tp = 1
  DType dtype = DType::kBF16;
  int64_t num_blocks = 0;

  int64_t BlockBytes() const {
    return int64_t{2} * kv_heads * block_tokens * head_dim * static_cast<int64_t>(BytesOf(dtype));
  }
  int64_t BytesPerToken() const { return num_layers * BlockBytes() / block_tokens; }
  bool operator==(const KvSpec&) const = default;
};

// A layout holds for any mode in which a group of `tp` ranks wrote (TP, SP or both;
// engine/parallel/shard_layout.h says which heads a rank holds). The functions after this one
// REQUIRE that it fits.
inline bool FitsHeads(KvLayout layout, const KvSpec& spec) {
  return skein::FitsHeads(layout, spec.kv_heads);
}

// Into how many parts the heads are cut.
inline int HeadCuts(KvLayout layout, const KvSpec& spec) {
  return skein::HeadCuts(layout, spec.kv_heads);
}
inline int TokensPerBlock(KvLayout layout, const KvSpec& spec) {
  return skein::TokensPerBlock(layout, spec.kv_heads, spec.block_tokens);
}
// Heads that one rank holds.
inline int KvHeads(KvLayout layout, const KvSpec& spec) {
  return spec.kv_heads / HeadCuts(layout, spec);
}

// Memory of one layer's blocks, owned by the engine for its whole life.
struct KvRegion {
  void* base = nullptr;
  int64_t bytes = 0;  // num_blocks * BlockBytes()
};

}  // namespace skein::engine
