// WeightSource: where the layer loop gets a layer's weights from. Implementations: WholeWeights
// (all of the model), SlotWeights (layers that are read ahead into slots, or are elsewhere), and
// SlicedWeights (one rank's slices).
#pragma once

#include "absl/status/statusor.h"
#include "engine/model/load/weights.h"

namespace skein::engine {

// Used by the engine's thread, layer by layer from 0 in each step.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The layer's norms and attention, which are always here; its feed_forward may be empty.
  virtual const LayerWeights& Layer(int layer) = 0;

  // In how many tiles the layer's feed-forward weights come (load/feed_forward_tiles.h). Where it
  // is one, the tile is the layer.
  virtual int Tiles(int /*layer*/) const { return 1; }

  // A tile of the layer's feed-forward weights, asked for in their order: of gate and up, of down,
  // or of all; the others are empty. The loop asks when the layer's attention is queued, so a
  // source may fill a slot while earlier layers run: work that is queued on the device afterwards
  // sees it filled. Null: they are not here, and the feed-forward phase must have another way. An
  // error ends the step.
  virtual absl::StatusOr<const FeedForwardWeights*> FeedForward(int layer, int tile) = 0;

  // Everything that reads what FeedForward(layer, tile) returned is queued: a slot may be filled
  // anew behind it.
  virtual void Used(int layer, int tile) = 0;
};

class WholeWeights final : public WeightSource {
 public:
  explicit WholeWeights(const ModelWeights* weights) : weights_(*weights) {}  // outlives this

  const LayerWeights& Layer(int layer) override {
    return weights_.layers[static_cast<size_t>(layer)];
  }
  absl::StatusOr<const FeedForwardWeights*> FeedForward(int layer, int /*tile*/) override {
    return &Layer(layer).feed_forward;
  }
  void Used(int /*layer*/, int /*tile*/) override {}

 private:
  const ModelWeights& weights_;
};

}  // namespace skein::engine
