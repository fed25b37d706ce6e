#include "engine/model/load/feed_forward_tiles.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace skein::engine {
namespace {

int64_t ElementBytes(const ConstMatrix& m) { return static_cast<int64_t>(BytesOf(m.dtype)); }

// Of one output of a map: a row of its weight, and an entry of its bias.
int64_t OutputBytes(const Linear& linear) {
  const int64_t bias = linear.bias.empty() ? 0 : ElementBytes(linear.bias);
  return linear.weight.cols * ElementBytes(linear.weight) + bias;
}

// By shape: the data is not moved on.
Linear Outputs(Linear linear, int64_t count) {
  linear.weight.rows = count;
  if (!linear.bias.empty()) linear.bias.cols = linear.bias.stride = count;
  return linear;
}

// Adds the tiles of the maps that `add` puts into a tile.
template <typename Add>
void Cut(const FeedForwardWeights& layer, int64_t outputs, int64_t output_bytes, int64_t tile_bytes,
         const Add& add, std::vector<FeedForwardTile>* tiles) {
  const PackedFeedForward whole(layer);
  const int64_t most = std::max<int64_t>(1, tile_bytes / output_bytes);
  const int64_t count = (outputs + most - 1) / most;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = outputs * i / count;
    const int64_t rows = outputs * (i + 1) / count - begin;
    FeedForwardWeights part;
    add(rows, &part);
    FeedForwardTile tile = {PackedFeedForward(part), {}};
    const std::array matrices = {&part.gate.weight, &part.up.weight, &part.down.weight,
                                 &part.gate.bias,   &part.up.bias,   &part.down.bias};
    for (size_t m = 0; m < matrices.size(); ++m) {
      if (matrices[m]->empty()) continue;
      const bool bias = m >= 3;
      const int64_t output = (bias ? 1 : matrices[m]->cols) * ElementBytes(*matrices[m]);
      tile.ranges.push_back(
          {whole.offsets()[m] + begin * output, tile.packed.offsets()[m], rows * output});
    }
    tiles->push_back(std::move(tile));
  }
}

}  // namespace

std::vector<FeedForwardTile> TilesOf(const FeedForwardWeights& layer, int64_t tile_bytes) {
  const PackedFeedForward whole(layer);
  if (tile_bytes == 0) return {{whole, {{0, 0, whole.bytes()}}}};
  std::vector<FeedForwardTile> tiles;
  Cut(
      layer, layer.gate.weight.rows, OutputBytes(layer.gate) + OutputBytes(layer.up), tile_bytes,
      [&](int64_t rows, FeedForwardWeights* part) {
        part->gate = Outputs(layer.gate, rows);
        part->up = Outputs(layer.up, rows);
      },
      &tiles);
  Cut(
      layer, layer.down.weight.rows, OutputBytes(layer.down), tile_bytes,
      [&](int64_t rows, FeedForwardWeights* part) { part->down = Outputs(layer.down, rows); },
      &tiles);
  return tiles;
}

}  // namespace skein::engine
