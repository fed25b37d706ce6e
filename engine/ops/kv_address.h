// Where a token's key or value lies in a layer's blocks (engine/kv/kv_spec.h has the picture).
#pragma once

#include <cstdint>

#include "engine/kv/kv_spec.h"
#include "engine/ops/ops.h"

namespace skein::engine {

enum class KvSide : int { kKey = 0, kValue = 1 };

// Elements (not bytes) from the layer's base to the head_dim elements of (`block`, `side`, `head`,
// `token_in_block`), as `layout` arranges the block.
inline int64_t KvElementOffset(const KvSpec& spec, KvLayout layout, int64_t block, KvSide side,
                               int head, int64_t token_in_block) {
  const int64_t tokens = TokensPerBlock(layout, spec);
  const int64_t heads = KvHeads(layout, spec);
  const int64_t row = ((block * 2 + static_cast<int64_t>(side)) * heads + head) * tokens;
  return (row + token_in_block) * spec.head_dim;
}

// The same for the key or value at `position` of a sequence, through its block table.
inline int64_t KvElementOf(const SequenceSpan& sequence, const KvSpec& spec, KvSide side, int head,
                           int64_t position) {
  const int64_t per_block = TokensPerBlock(sequence.layout, spec);
  const int32_t block = sequence.block_table[static_cast<size_t>(position / per_block)];
  return KvElementOffset(spec, sequence.layout, block, side, head, position % per_block);
}

}  // namespace skein::engine
