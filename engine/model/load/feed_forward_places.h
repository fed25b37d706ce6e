// Where the feed-forward weights of a model's layers are, for an instance that does not keep all.
#pragma once

#include <chrono>
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
  int slots = 1;                         // no more are made than there are layers in slots
  // What a layer waits for its slot, at most.
  std::chrono::nanoseconds wait_max = std::chrono::seconds(30);
  // Makes what fills the slots, out of what reads them from the checkpoint. Null: the latter.
  std::function<std::unique_ptr<FeedForwardReader>(std::unique_ptr<FeedForwardReader>)> make_reader;
};

}  // namespace skein::engine
