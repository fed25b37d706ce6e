#include "engine/model/layers/fill_order.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {

FillOrder::FillOrder(const std::vector<int>& tiles_of_layers, const std::vector<int>& layers,
                     int slots, int rank, int ranks) {
  SKEIN_CHECK(layers.size() == tiles_of_layers.size() && !layers.empty());
  SKEIN_CHECK(slots >= 1 && rank >= 0 && rank < ranks);
  // Ends of the cycles, as numbers of tiles, and where in each this rank begins.
  struct Cycle {
    int64_t begin = 0, first = 0, end = 0;
  };
  std::vector<Cycle> cycles;
  int64_t number = 0;
  int cycle = -1;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i] / ranks != cycle) {
      cycle = layers[i] / ranks;
      cycles.push_back({number, number, number});
    }
    number += tiles_of_layers[i];
    cycles.back().end = number;
    // It begins behind the last layer of the cycle that is before its own.
    if (layers[i] % ranks < rank) cycles.back().first = number;
  }
  SKEIN_CHECK(number > 0);
  for (const Cycle& c : cycles) {
    const int64_t tiles = c.end - c.begin;
    const int64_t window = std::min<int64_t>(slots, tiles);
    for (int64_t begin = c.begin; begin < c.end; begin += window) {
      const int64_t count = std::min(window, c.end - begin);
      // The whole cycle's shift, or the same share of a smaller window.
      const int64_t shift = tiles == 0 ? 0 : (c.first - c.begin) * count / tiles;
      for (int64_t i = 0; i < count; ++i) {
        order_.push_back(begin + (shift + i) % count);
        window_begin_.push_back(begin);
      }
    }
  }
}

int64_t FillOrder::At(int64_t position) const {
  const int64_t round = position / tiles();
  return round * tiles() + order_[static_cast<size_t>(position % tiles())];
}

int64_t FillOrder::PositionBefore(int64_t number) const {
  const int64_t round = number / tiles();
  return round * tiles() + window_begin_[static_cast<size_t>(number % tiles())];
}

}  // namespace skein::engine
