// The content tags of EmulatedEngine's KV, as arithmetic: what every word of every token's KV must
// be.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/kv/kv_spec.h"
#include "scheduler/vocabulary/mix64.h"

namespace skein::engine {

inline constexpr uint64_t kChainStart = 0x9e3779b97f4a7c15u;
inline constexpr int kKvParts = 2;  // K, V

// A token's link: a hash chain over (position, token) from the sequence's start, kChainStart.
inline uint64_t NextLink(uint64_t link, int64_t position, int32_t token) {
  return Mix64(link ^ Mix64(static_cast<uint64_t>(position) * 0x10001u +
                            static_cast<uint64_t>(static_cast<uint32_t>(token)) + 1));
}

// The word stored at (layer, part, head, word) for a token with this link. The salt of the very
// first place is 0, so that the link can be read back there.
inline uint64_t TagWord(uint64_t link, int layer, int part, int head, int word) {
  const uint64_t place =
      ((static_cast<uint64_t>(layer) * kKvParts + part) * 4096 + head) * 4096 + word;
  return place == 0 ? link : Mix64(link + place * kChainStart);
}

inline uint64_t Fold(uint64_t digest, uint64_t word) { return Mix64(digest + kChainStart) ^ word; }

// The links of all tokens of a sequence from its start.
std::vector<uint64_t> LinksOf(std::span<const int32_t> tokens);

// The size of one head of one token.
int WordsPerHead(const KvSpec& kv);

// `digest` with every word of one more token folded in: by layer, part, head, word.
uint64_t FoldToken(const KvSpec& kv, uint64_t digest, uint64_t link);

}  // namespace skein::engine
