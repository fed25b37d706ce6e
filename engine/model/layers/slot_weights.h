// SlotWeights: a model whose layers keep their feed-forward weights here, in slots, or elsewhere
// (SiDP's weights as a service: the weights of most layers are read ahead from their owners into a
// few slots; CaS: they are not read at all).
//
// A slot holds a tile. A thread of its own fills the slots, in the order of fill_order.h, round and
// round, so that the first layers of a step are read while the one before it ends: a slot is free
// again once its tile was used. Only the tile whose slot is not full yet is waited for. The bytes
// come from a FeedForwardReader, in pieces.
//
// On the host a slot is filled in place. On a device the piece is copied in the order of the
// device's own work (Device::Copy), which is right on any device, and hides no copy on a GPU: that
// takes copies that are nodes of the step's graph.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/layers/fill_order.h"
#include "engine/model/layers/weight_source.h"
#include "engine/model/load/feed_forward_places.h"
#include "engine/model/load/feed_forward_reader.h"
#include "engine/model/load/feed_forward_tiles.h"

namespace skein::engine {

// Bytes of a device that the slots take.
int64_t SlotBytes(const SlotOptions& options, const std::vector<FeedForwardWeights>& layers);

class SlotWeights final : public WeightSource {
 public:
  // `weights`, whose layers need feed-forward weights for kHere only, and `device` outlive this.
  // `layers`: every layer's feed-forward weights by shape. RESOURCE_EXHAUSTED when the device has
  // no memory for the slots. REQUIRES: one place a layer, at least one slot.
  static absl::StatusOr<std::unique_ptr<SlotWeights>> Create(
      const ModelWeights* weights, const std::vector<FeedForwardWeights>& layers,
      const SlotOptions& options, std::unique_ptr<FeedForwardReader> reader, Device* device);

  // Waits for the piece that is being read.
  ~SlotWeights() override;

  // Layer 0 begins a step: what an ended one has left over, or could not read, is put aside.
  const LayerWeights& Layer(int layer) override;

  int Tiles(int layer) const override;
  // The reader's error, with the layer, or DEADLINE_EXCEEDED after wait_max. A next step reads the
  // tile again.
  absl::StatusOr<const FeedForwardWeights*> FeedForward(int layer, int tile) override;
  void Used(int layer, int tile) override;

  // Between steps. False: from now on no tile is read before its layer asks for its first one, for
  // steps that need few of the layers. True, as at first: all are read ahead.
  void ReadAhead(bool ahead);

 private:
  // Tiles are numbered on over the steps (fill_order.h).
  struct Slot {
    enum class State { kFree, kFilling, kFull, kFailed };
    State state = State::kFree;
    int64_t number = -1;
    // Nobody waits for the fill that is under way. Written with the lock held.
    std::atomic<bool> dropped = false;
    absl::Status error;  // of kFailed
    FeedForwardWeights weights;
    DeviceBuffer memory;
  };
  struct Tile {
    int layer = 0;
    int index = 0;  // of the layer's tiles
  };

  SlotWeights(const ModelWeights* weights, const std::vector<FeedForwardWeights>& layers,
              const SlotOptions& options, std::unique_ptr<FeedForwardReader> reader,
              Device* device);

  // Of the filling thread.
  void FillSlots();
  Slot* NextToFill();
  absl::Status Fill(Slot& slot);

  // REQUIRE the lock.
  Slot* Holder(int64_t number);
  std::optional<int64_t> NextNumber();  // to be read now
  int64_t NumberFrom(int64_t from, int layer, int tile) const;
  void Seek(int64_t number);  // nobody needs those before it any more
  void Drop(Slot& slot);
  const Tile& TileOf(int64_t number) const;

  const ModelWeights& weights_;
  const SlotOptions options_;
  const std::unique_ptr<FeedForwardReader> reader_;
  Device* const device_;
  std::vector<std::vector<FeedForwardTile>> tiles_;  // by layer; of those in slots
  std::vector<Tile> needed_;                         // by a step, in its order
  std::vector<int64_t> first_;                       // of needed_, by layer
  std::optional<FillOrder> order_;                   // where there are tiles
  std::vector<std::byte> piece_;                     // on its way to a device

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Slot> slots_;
  int64_t now_ = 0;                 // the tile that is needed next, or in use
  int64_t position_ = 0;            // in the order: the next to be read ahead
  bool ahead_ = true;               // else only what is asked for is read: from now_ to ...
  int64_t asked_end_ = 0;           // ... here
  bool failed_ = false;             // a fill has; nothing more is read until a step begins
  std::atomic<bool> stop_ = false;  // written with the lock held
  std::thread filler_;
};

}  // namespace skein::engine
