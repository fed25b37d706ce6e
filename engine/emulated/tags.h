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

inline uint64_t PlaceOf(int layer, int part, int head, int word) {
  return ((static_cast<uint64_t>(layer) * kKvParts + part) * 4096 + head) * 4096 + word;
}

// The word stored at (layer, part, head, word) for a token with this link; `head` is the model's.
// The salt of the very first place is 0.
inline uint64_t TagWord(uint64_t link, int layer, int part, int head, int word) {
  const uint64_t place = PlaceOf(layer, part, head, word);
  return place == 0 ? link : Mix64(link + place * kChainStart);
}

// The x of which Mix64 is `y`.
inline uint64_t UnMix64(uint64_t y) {
  y = (y ^ (y >> 31) ^ (y >> 62)) * 0x319642b2d24d8ec3u;
  y = (y ^ (y >> 27) ^ (y >> 54)) * 0x96de1b173f119089u;
  return y ^ (y >> 30) ^ (y >> 60);
}

// The link of a token whose first word in layer 0 of that head is `word`.
inline uint64_t LinkOfFirstWord(uint64_t word, int head) {
  const uint64_t place = PlaceOf(0, 0, head, 0);
  return place == 0 ? word : UnMix64(word) - place * kChainStart;
}

inline uint64_t Fold(uint64_t digest, uint64_t word) { return Mix64(digest + kChainStart) ^ word; }

// The links of all tokens of a sequence from its start.
std::vector<uint64_t> LinksOf(std::span<const int32_t> tokens);

// The size of one head of one token.
int WordsPerHead(const KvSpec& kv);

// A sequence's digest is that of its heads, each a chain of its own: ranks that hold some of the
// heads can put it together.
uint64_t JoinChains(std::span<const uint64_t> chains);

// Whether the chains start anew with the token at `position` (EmulatedOptions::digest_tokens).
inline bool BeginsDigest(int64_t position, int64_t digest_tokens) {
  return digest_tokens > 0 ? position % digest_tokens == 0 : position == 0;
}

// Folds every word of one more token into the chains of all heads: by layer, part, word.
void FoldToken(const KvSpec& kv, uint64_t link, std::span<uint64_t> chains);

}  // namespace skein::engine
