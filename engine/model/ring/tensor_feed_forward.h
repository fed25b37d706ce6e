// TensorFeedForward: the feed-forward part of a ring step whose tensor groups share it
// (RingStep::tp > 1). Each rank multiplies the rows of all ranks of its tensor group by 1/tp of the
// columns, and gets the sums of its own rows: it reads 1/tp of the weights.
#pragma once

#include "engine/model/forward/run_state.h"
#include "engine/model/layers/layer_loop.h"
#include "engine/model/ring/tensor_rows.h"

namespace skein::engine {

class TensorFeedForward final : public FeedForwardPhase {
 public:
  // All outlive this.
  TensorFeedForward(const Model* model, TensorRows* tensor, RunState* state)
      : model_(*model), tensor_(*tensor), state_(*state) {}

  // `weights` gives this rank's slices. Every rank of the tensor group calls it, with rows or
  // without.
  absl::Status Run(const LayerWeights& w, WeightSource& weights, int layer,
                   const Batch& rows) override;

 private:
  const Model& model_;
  TensorRows& tensor_;
  RunState& state_;
};

}  // namespace skein::engine
