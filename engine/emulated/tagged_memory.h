// Tags in the memory of KV blocks. Internal to this folder.
#pragma once

#include <cstdint>
#include <span>

#include "engine/emulated/tags.h"
#include "engine/kv/kv_spec.h"

namespace skein::engine {

class TaggedMemory {
 public:
  // Both outlive this.
  TaggedMemory(const KvSpec* kv, std::span<const KvRegion> regions)
      : kv_(*kv), regions_(regions), words_per_head_(WordsPerHead(*kv)) {}

  // The words of one head of the token in `slot` of `block`.
  uint64_t* Words(int layer, int32_t block, int64_t slot, int part, int head) const {
    const int64_t row =
        ((int64_t{block} * kKvParts + part) * kv_.kv_heads + head) * kv_.block_tokens + slot;
    return static_cast<uint64_t*>(regions_[static_cast<size_t>(layer)].base) +
           row * words_per_head_;
  }

  void WriteToken(int layer, int32_t block, int64_t slot, uint64_t link) const {
    for (int part = 0; part < kKvParts; ++part) {
      for (int head = 0; head < kv_.kv_heads; ++head) {
        uint64_t* words = Words(layer, block, slot, part, head);
        for (int w = 0; w < words_per_head_; ++w) words[w] = TagWord(link, layer, part, head, w);
      }
    }
  }

  // Whether the token's words are those of `link` in every layer.
  bool HoldsToken(int32_t block, int64_t slot, uint64_t link) const {
    for (int layer = 0; layer < kv_.num_layers; ++layer) {
      for (int part = 0; part < kKvParts; ++part) {
        for (int head = 0; head < kv_.kv_heads; ++head) {
          const uint64_t* words = Words(layer, block, slot, part, head);
          for (int w = 0; w < words_per_head_; ++w) {
            if (words[w] != TagWord(link, layer, part, head, w)) return false;
          }
        }
      }
    }
    return true;
  }

  // `digest` with the token's words as they are in memory folded in, as FoldToken does.
  uint64_t FoldFrom(uint64_t digest, int32_t block, int64_t slot) const {
    for (int layer = 0; layer < kv_.num_layers; ++layer) {
      for (int part = 0; part < kKvParts; ++part) {
        for (int head = 0; head < kv_.kv_heads; ++head) {
          const uint64_t* words = Words(layer, block, slot, part, head);
          for (int w = 0; w < words_per_head_; ++w) digest = Fold(digest, words[w]);
        }
      }
    }
    return digest;
  }

  std::byte* Block(int layer, int32_t block) const {
    return static_cast<std::byte*>(regions_[static_cast<size_t>(layer)].base) +
           block * kv_.BlockBytes();
  }

 private:
  const KvSpec& kv_;
  std::span<const KvRegion> regions_;
  int words_per_head_;
};

}  // namespace skein::engine
