// A layer's feed-forward weights in one piece of memory, as they are sent and as a slot holds them:
// gate, up, down, then their biases; each begins at a multiple of 256 bytes, but for up, which
// follows gate of its dtype without a gap, so that their products may be one (engine/ops:products).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/model/load/weights.h"

namespace skein::engine {

class PackedFeedForward {
 public:
  // In the shapes, dtypes and slices of `weights`, whose data is not read.
  explicit PackedFeedForward(const FeedForwardWeights& weights);

  int64_t bytes() const { return bytes_; }

  // Where the weights of gate, up and down, then their biases begin; -1 of what is empty.
  const std::vector<int64_t>& offsets() const { return offsets_; }

  // The weights as views of `packed`, bytes() long.
  FeedForwardWeights At(const void* packed) const;

  // Writes the bytes from `offset` on of what `weights`, which lie anywhere, are when packed: gaps
  // stay as they are. REQUIRES: offset + to.size() <= bytes(), and the shapes
  // are this one's.
  void Pack(const FeedForwardWeights& weights, int64_t offset, std::span<std::byte> to) const;

 private:
  FeedForwardWeights shapes_;
  std::vector<int64_t> offsets_;  // of the matrices, in their order; -1 of one that is empty
  int64_t bytes_ = 0;
};

}  // namespace skein::engine
