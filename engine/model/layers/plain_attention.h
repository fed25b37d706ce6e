// PlainAttention: the attention of a step of one instance alone.
#pragma once

#include "engine/model/forward/run_state.h"
#include "engine/model/layers/layer_loop.h"

namespace skein::engine {

class PlainAttention final : public AttentionPhase {
 public:
  // All outlive this. REQUIRES: `batch` has rows, at most as many as `state`.
  PlainAttention(const Model* model, const Batch* batch, RunState* state)
      : model_(*model), state_(*state), rows_(batch) {}

  void Begin() override;
  absl::Status WriteKv(const LayerWeights& w, int layer) override;
  bool KeepLogitRows(const LayerWeights& w, int layer) override;
  absl::Status Attend(const LayerWeights& w, int layer) override;
  const Batch& Rows() const override { return *rows_; }
  absl::Status End() override;

 private:
  const Model& model_;
  RunState& state_;
  const Batch* rows_;
  Batch selected_;  // of the last layer
};

}  // namespace skein::engine
