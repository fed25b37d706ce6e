// In which order slots are filled with the tiles that a model's layers need in theirs, step after
// step: peak shifting (SiDP, section 4.2). Plain arithmetic.
//
// Tiles are numbered in the order in which a step needs them. They are cut into windows of as many
// as the slots hold at once, at most a cycle of `ranks` layers; rank r begins with another tile of
// each window and goes on round it. Since a window fits in the slots, no tile that is needed waits
// for a slot that only a later one would free.
#pragma once

#include <cstdint>
#include <vector>

namespace skein::engine {

class FillOrder {
 public:
  // `tiles_of_layers`: of the layers that are in slots, in their order; `layers`: which of all
  // layers each is. REQUIRES: at least one tile, slots >= 1, rank
  // in [0, ranks).
  FillOrder(const std::vector<int>& tiles_of_layers, const std::vector<int>& layers, int slots,
            int rank, int ranks);

  // Of a step.
  int64_t tiles() const { return static_cast<int64_t>(order_.size()); }
  // The number of the tile that is filled as the `position`th; both count on over the steps.
  int64_t At(int64_t position) const;
  // The position from which on all tiles from `number` on are filled: its window's first.
  int64_t PositionBefore(int64_t number) const;

 private:
  std::vector<int64_t> order_;         // by position
  std::vector<int64_t> window_begin_;  // by number
};

}  // namespace skein::engine
