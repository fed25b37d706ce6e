#include "engine/emulated/tags.h"

#include <algorithm>
#include <set>

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

uint64_t FoldToken(const KvSpec& kv, uint64_t digest, uint64_t link) {
  const int words = WordsPerHead(kv);
  for (int layer = 0; layer < kv.num_layers; ++layer) {
    for (int part = 0; part < kKvParts; ++part) {
      for (int head = 0; head < kv.kv_heads; ++head) {
        for (int w = 0; w < words; ++w) digest = Fold(digest, TagWord(link, layer, part, head, w));
      }
    }
  }
  return digest;
}

int32_t SampleFrom(uint64_t digest, int vocab_size, const SamplingParams* sampling,
                   uint64_t index) {
  const auto token = static_cast<int32_t>(digest % static_cast<uint64_t>(vocab_size));
  if (sampling == nullptr || index >= static_cast<uint64_t>(std::max(0, sampling->min_tokens))) {
    return token;
  }
  const std::set<int32_t> suppressed(sampling->suppressed_until_min_tokens.begin(),
                                     sampling->suppressed_until_min_tokens.end());
  if (suppressed.size() >= static_cast<size_t>(vocab_size)) return -1;
  int32_t next = token;
  while (suppressed.count(next) > 0) next = (next + 1) % vocab_size;
  return next;
}

}  // namespace skein::engine
