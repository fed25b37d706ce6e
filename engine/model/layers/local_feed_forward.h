// LocalFeedForward: the feed-forward part with the weights that are here: all of a layer's, or one
// rank's slices, whose products are then partial sums.
#pragma once

#include "engine/model/forward/run_state.h"
#include "engine/model/layers/layer_loop.h"

namespace skein::engine {

// FAILED_PRECONDITION: the layer's weights are not here. Else what `weights` says, never null.
absl::StatusOr<const FeedForwardWeights*> FeedForwardHere(WeightSource& weights, int layer,
                                                          int tile);

// out = down(silu(gate(x)) * up(x)); the rows of x are those of `rows`.
void MultiplyFeedForward(const Model& model, const FeedForwardWeights& weights, const Batch& rows,
                         const Matrix& x, const Matrix& out, RunState& state);

class LocalFeedForward final : public FeedForwardPhase {
 public:
  LocalFeedForward(const Model* model, RunState* state) : model_(*model), state_(*state) {}

  // As FeedForwardHere. Waits for each tile when it needs it, not for the layer.
  absl::Status Run(const LayerWeights& w, WeightSource& weights, int layer,
                   const Batch& rows) override;

 private:
  const Model& model_;
  RunState& state_;
};

}  // namespace skein::engine
