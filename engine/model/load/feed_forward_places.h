// Where the feed-forward weights of a model's layers are, for an instance that does not keep all.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace skein::engine {

class FeedForwardReader;

enum class FeedForwardPlace {
  kHere,       // with the layer's other weights
  kSlot,       // read into a slot for each step
  kElsewhere,  // never here: the feed-forward phase has another way
};

struct SlotOptions {
  std::vector<FeedForwardPlace> places;  // by layer
  int slots = 1;                         // no more are made than there are tiles for them
  // A slot holds a tile (load/feed_forward_tiles.h) of about so many bytes. 0: a whole layer.
  int64_t tile_bytes = 0;
  // Peak shifting (SiDP, section 4.2): which of how many instances that read the same layers this
  // one is. Each reads the tiles of a window, one cycle of `ranks` layers if the slots hold so
  // many, in another order, so that they do not all read from one owner.
  int rank = 0;
  int ranks = 1;
  // What a tile that is needed is waited for, at most.
  std::chrono::nanoseconds wait_max = std::chrono::seconds(30);
  // Makes what fills the slots, out of what reads them from the checkpoint. Null: the latter.
  std::function<std::unique_ptr<FeedForwardReader>(std::unique_ptr<FeedForwardReader>)> make_reader;
};

}  // namespace skein::engine
