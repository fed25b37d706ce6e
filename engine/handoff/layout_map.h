// Maps the bytes of one KV block to a receiver that keeps another layout. Pure arithmetic.
//
// The source writes blocks of layout TP 1: [2: K, V][kv_heads][block_tokens][head_dim]. A receiver
// of p ranks (KvLayout{p}) keeps, at each rank, blocks of the same bytes with 1 / c of the heads
// and c times the tokens (kv_spec.h; c = p, or kv_heads if that is less: then p / kv_heads
// neighbours hold the same head): [2][kv_heads / c][block_tokens * c][head_dim]. So source block g
// becomes, at every rank, 1 / c of its block g / c: one run of bytes for each of K, V and each of
// the rank's heads; for p = 1 the whole block.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/kv/kv_spec.h"

namespace skein::engine {

// `bytes` bytes at `source_offset` of the source block go to `target_offset` of the target block.
struct LayoutPiece {
  int64_t source_offset = 0;
  int64_t target_offset = 0;
  int64_t bytes = 0;
  bool operator==(const LayoutPiece&) const = default;
};

// FAILED_PRECONDITION "layout: …" unless every rank of `target` gets the same whole heads.
absl::Status CheckLayout(const KvSpec& spec, KvLayout target);

// Blocks that a rank of `target` keeps for `tokens` tokens; with {1}: those of the source.
int64_t BlocksOfLayout(const KvSpec& spec, KvLayout target, int64_t tokens);

// Index, in the block table of a rank of `target`, of the block that source block `global_block`
// goes to.
int64_t TargetBlock(const KvSpec& spec, KvLayout target, int64_t global_block);

// The pieces of source block `global_block` at `rank`, ascending on both sides; together
// BlockBytes() / c. REQUIRES: CheckLayout is OK, 0 <= rank < tp.
std::vector<LayoutPiece> MapBlock(const KvSpec& spec, KvLayout target, int rank,
                                  int64_t global_block);

}  // namespace skein::engine
