// Who keeps which layers' feed-forward weights when ranks of one node share them, and what that
// takes and frees (SiDP, sections 4.1, 4.2 and 4.4). Plain values; no memory is touched.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/load/weights.h"

namespace skein::engine {

// Layer l of d ranks' model is owned by rank l mod d; the others have a placeholder for it.
struct WeightOwners {
  int ranks = 1;

  int OwnerOf(int layer) const { return layer % ranks; }
};

// The slots of each rank.
struct SlotPlan {
  int slots = 0;
  int64_t tile_bytes = 0;  // of a slot, at most (load/feed_forward_tiles.h)

  int64_t bytes() const { return slots * tile_bytes; }
};

inline constexpr int64_t kSlotBytesMax = int64_t{1} << 30;

// Room for the tiles of ranks - 1 layers, each cut in three: gate and up by halves, and down. If
// that is more than `bytes_max`, the tiles are smaller, and as many. `layers`: by shape, at least
// one. REQUIRES: ranks >= 2.
SlotPlan DefaultSlots(const std::vector<FeedForwardWeights>& layers, int ranks,
                      int64_t bytes_max = kSlotBytesMax);

// Bytes of the feed-forward weights. The paper says two things of the slots: section 4.2, that the
// cache holds ranks - 1 whole layers; section 4.4, that ranks - 1 slots and two more for CaS cost
// at most 1 GB. Of models whose layers are large they differ: slots of whole layers are then more
// than the second allows, and DefaultSlots keeps to it.
struct SharingBytes {
  int64_t whole = 0;            // of all layers: what a rank has that does not share
  std::vector<int64_t> owned;   // by rank
  int64_t slots = 0;            // of each rank, as planned
  int64_t slots_of_layers = 0;  // by section 4.2: ranks - 1 of the largest layer
  int64_t slots_bounded = 0;    // by section 4.4: the same, and 1 GiB at most
  // Of one iteration in WaS: by rank, and by the owner that it reads from. 0 from itself.
  std::vector<std::vector<int64_t>> read;

  // More than before, for KV.
  int64_t Freed(int rank) const { return whole - owned[static_cast<size_t>(rank)] - slots; }
};

SharingBytes CountSharing(const std::vector<FeedForwardWeights>& layers, int ranks,
                          const SlotPlan& plan);

// A few lines for people, both readings among them.
std::string Describe(const SharingBytes& bytes);

}  // namespace skein::engine
