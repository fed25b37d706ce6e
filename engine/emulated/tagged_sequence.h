// A step's part of a sequence, in tagged memory. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/emulated/tagged_memory.h"
#include "engine/engine.h"

namespace skein::engine {

// After each of the step's tokens; the one before them is read from the KV.
inline std::vector<uint64_t> LinksOfStep(const TaggedMemory& memory, const SequenceStep& sequence) {
  uint64_t link = kChainStart;
  if (sequence.position > 0) {
    const int64_t before = sequence.position - 1;
    link = memory.LinkAt(sequence.block_table[before / memory.block_tokens()],
                         before % memory.block_tokens());
  }
  std::vector<uint64_t> links;
  int64_t position = sequence.position;
  for (const int32_t token : sequence.tokens) {
    links.push_back(link = NextLink(link, position++, token));
  }
  return links;
}

inline void WriteTags(const TaggedMemory& memory, const SequenceStep& sequence, int layer,
                      std::span<const uint64_t> links) {
  int64_t position = sequence.position;
  for (const uint64_t link : links) {
    memory.WriteToken(layer, sequence.block_table[position / memory.block_tokens()],
                      position % memory.block_tokens(), link);
    ++position;
  }
}

// After each of the step's tokens the digests of the memory's heads, [tokens][heads], over what the
// block table holds so far, from where the digest begins (EmulatedOptions::digest_tokens).
inline std::vector<uint64_t> ChainsOfStep(const TaggedMemory& memory, int64_t digest_tokens,
                                          const SequenceStep& sequence) {
  const int64_t end = sequence.position + static_cast<int64_t>(sequence.tokens.size());
  std::vector<uint64_t> chains(static_cast<size_t>(memory.heads())), all;
  const int64_t begin = digest_tokens > 0 ? sequence.position / digest_tokens * digest_tokens : 0;
  for (int64_t position = begin; position < end; ++position) {
    if (BeginsDigest(position, digest_tokens)) chains.assign(chains.size(), 0);
    memory.FoldFrom(sequence.block_table[position / memory.block_tokens()],
                    position % memory.block_tokens(), chains);
    if (position >= sequence.position) all.insert(all.end(), chains.begin(), chains.end());
  }
  return all;
}

}  // namespace skein::engine
