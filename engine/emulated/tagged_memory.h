// Tags in the memory of KV blocks. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/emulated/tags.h"
#include "engine/kv/kv_spec.h"
#include "engine/parallel/shard_layout.h"

namespace skein::engine {

// The blocks of one layout, with the heads that one rank holds. Heads are local here: 0 is the
// rank's first; their tags are those of the model's.
class TaggedMemory {
 public:
  // Both outlive this. All heads in layout tp = 1.
  TaggedMemory(const KvSpec* kv, std::span<const KvRegion> regions)
      : TaggedMemory(kv, regions, KvLayout{}, {0, kv->kv_heads}) {}
  TaggedMemory(const KvSpec* kv, std::span<const KvRegion> regions, KvLayout layout,
               const ShardRange& heads)
      : kv_(*kv),
        regions_(regions),
        block_tokens_(TokensPerBlock(layout, *kv)),
        first_head_(static_cast<int>(heads.begin)),
        heads_(static_cast<int>(heads.count)),
        words_per_head_(WordsPerHead(*kv)) {}

  int block_tokens() const { return block_tokens_; }
  int heads() const { return heads_; }

  // The words of one head of the token in `slot` of `block`.
  uint64_t* Words(int layer, int32_t block, int64_t slot, int part, int head) const {
    const int64_t row = (int64_t{part} * heads_ + head) * block_tokens_ + slot;
    return reinterpret_cast<uint64_t*>(Block(layer, block)) + row * words_per_head_;
  }

  void WriteToken(int layer, int32_t block, int64_t slot, uint64_t link) const {
    for (int part = 0; part < kKvParts; ++part) {
      for (int head = 0; head < heads_; ++head) {
        uint64_t* words = Words(layer, block, slot, part, head);
        for (int w = 0; w < words_per_head_; ++w) words[w] = Tag(link, layer, part, head, w);
      }
    }
  }

  // The link of the token, by its first word.
  uint64_t LinkAt(int32_t block, int64_t slot) const {
    return LinkOfFirstWord(*Words(0, block, slot, 0, 0), first_head_);
  }

  // Whether the token's words are those of `link` in every layer.
  bool HoldsToken(int32_t block, int64_t slot, uint64_t link) const {
    for (int layer = 0; layer < kv_.num_layers; ++layer) {
      for (int part = 0; part < kKvParts; ++part) {
        for (int head = 0; head < heads_; ++head) {
          const uint64_t* words = Words(layer, block, slot, part, head);
          for (int w = 0; w < words_per_head_; ++w) {
            if (words[w] != Tag(link, layer, part, head, w)) return false;
          }
        }
      }
    }
    return true;
  }

  // Folds the token's words as they are in memory into the heads' chains, as FoldToken does.
  void FoldFrom(int32_t block, int64_t slot, std::span<uint64_t> chains) const {
    for (int layer = 0; layer < kv_.num_layers; ++layer) {
      for (int part = 0; part < kKvParts; ++part) {
        for (int head = 0; head < heads_; ++head) {
          const uint64_t* words = Words(layer, block, slot, part, head);
          uint64_t& chain = chains[static_cast<size_t>(head)];
          for (int w = 0; w < words_per_head_; ++w) chain = Fold(chain, words[w]);
        }
      }
    }
  }

  std::byte* Block(int layer, int32_t block) const {
    return static_cast<std::byte*>(regions_[static_cast<size_t>(layer)].base) +
           block * kv_.BlockBytes();
  }

 private:
  uint64_t Tag(uint64_t link, int layer, int part, int head, int word) const {
    return TagWord(link, layer, part, first_head_ + head, word);
  }

  const KvSpec& kv_;
  std::span<const KvRegion> regions_;
  int block_tokens_;
  int first_head_;
  int heads_;
  int words_per_head_;
};

}  // namespace skein::engine
