// LocalFeedForward: the feed-forward part with the weights that are here: all of a layer's, or one
// rank's slices, whose products are then partial sums.
#pragma once

#include "engine/model/forward/run_state.h"
#include "engine/model/layers/layer_loop.h"

namespace skein::engine {

class LocalFeedForward final : public FeedForwardPhase {
 public:
  LocalFeedForward(const Model* model, RunState* state) : model_(*model), state_(*state) {}

  // FAILED_PRECONDITION: the layer's weights are not here.
  absl::Status Run(const LayerWeights& w, WeightSource& weights, int layer,
                   const Batch& rows) override;

 private:
  const Model& model_;
  RunState& state_;
};

}  // namespace skein::engine
