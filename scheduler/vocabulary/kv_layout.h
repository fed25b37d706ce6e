// KvLayout: how the heads of a sequence's KV are split over the ranks of its group, and what a
// block holds then. Blocks have constant bytes: a rank that holds fewer heads has more tokens in a
// block.
#pragma once

#include <cstdint>

namespace skein {

// The KV was written by a group of `tp` ranks; 1: by one instance alone. It travels with the
// sequence, and every message that names blocks carries it.
struct KvLayout {
  int32_t tp = 1;
  bool operator==(const KvLayout&) const = default;
};

// tp divides kv_heads, or kv_heads divides tp. The functions after this one REQUIRE it.
inline bool FitsHeads(KvLayout layout, int32_t kv_heads) {
  return layout.tp >= 1 && kv_heads >= 1 &&
         (kv_heads % layout.tp == 0 || layout.tp % kv_heads == 0);
}

// Into how many parts the heads are cut. No head is cut: in a group of more ranks than heads
// several ranks hold the same one.
inline int32_t HeadCuts(KvLayout layout, int32_t kv_heads) {
  return layout.tp < kv_heads ? layout.tp : kv_heads;
}

// `block_tokens`: those of a block of one instance alone.
inline int32_t TokensPerBlock(KvLayout layout, int32_t kv_heads, int32_t block_tokens) {
  return block_tokens * HeadCuts(layout, kv_heads);
}

}  // namespace skein
