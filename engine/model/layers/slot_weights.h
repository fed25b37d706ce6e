// SlotWeights: a model whose layers keep their feed-forward weights here, in a slot, or elsewhere
// (SiDP's weights as a service: the weights of most layers are read ahead from their owners into a
// few slots; CaS: they are not read at all).
//
// A thread of its own fills the slots in the order in which the layers run, round and round, so
// that the first layers of a step are read while the one before it ends: a slot is free again once
// its layer was used. Only the layer whose slot is not full yet waits. The bytes come from a
// FeedForwardReader, in pieces.
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
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/layers/weight_source.h"
#include "engine/model/load/feed_forward_places.h"
#include "engine/model/load/feed_forward_reader.h"
#include "engine/model/load/packed_feed_forward.h"

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

  // The reader's error, with the layer, or DEADLINE_EXCEEDED after wait_max. A next step reads the
  // layer again.
  absl::StatusOr<const FeedForwardWeights*> FeedForward(int layer) override;
  void Used(int layer) override;

 private:
  struct Slot {
    enum class State { kFree, kFilling, kFull, kFailed };
    State state = State::kFree;
    int layer = -1;
    // Nobody waits for the fill that is under way. Written with the lock held.
    std::atomic<bool> dropped = false;
    absl::Status error;  // of kFailed
    FeedForwardWeights weights;
    DeviceBuffer memory;
  };

  SlotWeights(const ModelWeights* weights, const std::vector<FeedForwardWeights>& layers,
              const SlotOptions& options, std::unique_ptr<FeedForwardReader> reader,
              Device* device);

  // Of the filling thread.
  void FillSlots();
  Slot* NextToFill();
  absl::Status Fill(Slot& slot);

  // REQUIRE the lock.
  void Seek(int layer);  // the slots' first is, or will be, this layer
  void DropFirst();
  void FillFrom(int layer);
  size_t OrderOf(int layer) const;

  const ModelWeights& weights_;
  const SlotOptions options_;
  const std::unique_ptr<FeedForwardReader> reader_;
  Device* const device_;
  std::vector<PackedFeedForward> packed_;  // by layer
  std::vector<int> order_;                 // the layers in slots
  std::vector<std::byte> piece_;           // on its way to a device

  std::mutex mu_;
  std::condition_variable changed_;
  std::deque<Slot> slots_;
  std::deque<Slot*> queue_;  // full or being filled, in the order of their layers; the rest is free
  size_t next_ = 0;          // of order_: the layer to read next
  bool failed_ = false;      // the last of queue_ has; nothing more is read until a step begins
  std::atomic<bool> stop_ = false;  // written with the lock held
  std::thread filler_;
};

}  // namespace skein::engine
