// TensorFeedForward: the feed-forward part of a ring step whose tensor groups share it
// (RingStep::tp > 1). Each rank multiplies the rows of all ranks of its tensor group by 1/tp of the
// columns, and gets the sums of its own rows: it reads 1/tp of the weights.
#pragma once

#include "engine/model/forward/run_state.h"
#include "engine/model/layers/layer_loop.h"
#include "engine/model/layers/weight_source.h"
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

// The weights of such a step: attention's whole, the feed-forward part's sliced.
class FeedForwardSlices final : public WeightSource {
 public:
  // Both outlive this.
  FeedForwardSlices(WeightSource* whole, WeightSource* slices) : whole_(*whole), slices_(*slices) {}

  const LayerWeights& Layer(int layer) override { return whole_.Layer(layer); }
  absl::StatusOr<const FeedForwardWeights*> FeedForward(int layer) override {
    return slices_.FeedForward(layer);
  }
  void Used(int layer) override { slices_.Used(layer); }

 private:
  WeightSource& whole_;
  WeightSource& slices_;
};

}  // namespace skein::engine
