// Tiles of a layer's feed-forward weights: the pieces in which they are read into slots and
// multiplied with (SiDP, section 4.2: a slot holds tiles, and compute waits for those that it needs
// next). A tile is rows of gate and the same rows of up, or rows of down, with their biases: whole
// outputs of a product, so cutting a layer into tiles changes no sum.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model/load/packed_feed_forward.h"
#include "engine/model/load/weights.h"

namespace skein::engine {

struct FeedForwardTile {
  struct Range {
    int64_t from = 0;  // of the layer, packed
    int64_t to = 0;    // of the tile, packed
    int64_t bytes = 0;
  };

  PackedFeedForward packed;  // the tile by itself: of gate and up, or of down, or of all
  std::vector<Range> ranges;
};

// In the order in which they are needed: those of gate and up, then those of down. No tile has more
// than `tile_bytes`, unless a row of it has, and the gaps between matrices. 0: one tile, the whole
// layer. The data of `layer` is not read.
std::vector<FeedForwardTile> TilesOf(const FeedForwardWeights& layer, int64_t tile_bytes);

}  // namespace skein::engine
