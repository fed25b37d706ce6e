#include "engine/emulated/tags.h"

namespace skein::engine {

std::vector<uint64_t> LinksOf(std::span<const int32_t> tokens) {
  std::vector<uint64_t> links;
  links.reserve(tokens.size());
  uint64_t link = kChainStart;
  for (const int32_t token : tokens) {
    link = NextLink(link, static_cast<int64_t>(links.size()), token);
    links.push_back(link);
  }
  return links;
}

int WordsPerHead(const KvSpec& kv) {
  return static_cast<int>(kv.head_dim * BytesOf(kv.dtype) / sizeof(uint64_t));
}

uint64_t JoinChains(std::span<const uint64_t> chains) {
  uint64_t digest = 0;
  for (const uint64_t chain : chains) digest = Fold(digest, chain);
  return digest;
}

void FoldToken(const KvSpec& kv, uint64_t link, std::span<uint64_t> chains) {
  const int words = WordsPerHead(kv);
  for (int layer = 0; layer < kv.num_layers; ++layer) {
    for (int part = 0; part < kKvParts; ++part) {
      for (int head = 0; head < kv.kv_heads; ++head) {
        uint64_t& chain = chains[static_cast<size_t>(head)];
        for (int w = 0; w < words; ++w) chain = Fold(chain, TagWord(link, layer, part, head, w));
      }
    }
  }
}

}  // namespace skein::engine
