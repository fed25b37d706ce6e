#include "engine/model/testing/kv_compare.h"

#include <cmath>

#include "engine/ops/element.h"

namespace skein::engine {
namespace {

// Of one layer's block, its first `tokens` tokens.
double BlockDifference(const KvSpec& kv, const void* a, int64_t a_block, const void* b,
                       int64_t b_block, int64_t tokens) {
  const int64_t elements = kv.BlockBytes() / static_cast<int64_t>(BytesOf(kv.dtype));
  double largest = 0.0;
  for (int64_t i = 0; i < elements; ++i) {
    if (i / kv.head_dim % kv.block_tokens >= tokens) continue;
    const double difference = std::abs(LoadElement(a, kv.dtype, a_block * elements + i) -
                                       LoadElement(b, kv.dtype, b_block * elements + i));
    if (!(difference <= largest)) largest = difference;
  }
  return largest;
}

}  // namespace

double LargestKvDifference(const std::vector<Engine*>& engines,
                           const std::vector<BlockPlace>& actual, const Engine& plain,
                           const std::vector<BlockPlace>& expected, int64_t tokens) {
  const KvSpec& kv = plain.Spec().kv;
  double largest = 0.0;
  for (size_t block = 0; block < expected.size(); ++block) {
    const Engine& engine = *engines[static_cast<size_t>(actual[block].engine)];
    const int64_t left = tokens - static_cast<int64_t>(block) * kv.block_tokens;
    for (size_t layer = 0; layer < static_cast<size_t>(kv.num_layers); ++layer) {
      const double difference =
          BlockDifference(kv, engine.KvRegions()[layer].base, actual[block].block,
                          plain.KvRegions()[layer].base, expected[block].block, left);
      if (!(difference <= largest)) largest = difference;
    }
  }
  return largest;
}

}  // namespace skein::engine
