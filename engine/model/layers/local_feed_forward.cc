#include "engine/model/layers/local_feed_forward.h"

#include <string>

#include "engine/model/forward/forward_parts.h"

namespace skein::engine {

namespace {

// The product of x with some outputs of gate and up, or of down, into its columns of what all tiles
// of the layer make.
class TileProducts {
 public:
  TileProducts(const Model& model, const Batch& rows, const Matrix& x, const Matrix& out,
               RunState& state)
      : model_(model), rows_(rows), x_(x), out_(out) {
    inner_ = model.config->intermediate_size;
    gate_up_ = Compact(state.gate_up, x.rows, 2 * inner_);
    ffn_ = Compact(state.ffn, x.rows, inner_);
  }

  void Multiply(const FeedForwardWeights& tile) {
    if (!tile.gate.weight.empty()) MultiplyGateUp(tile);
    if (tile.down.weight.empty()) return;
    const int64_t count = tile.down.weight.rows;
    Apply(model_, rows_, ffn_, {{tile.down, Columns(out_, x_.rows, down_, count)}});
    down_ += count;
  }

 private:
  void MultiplyGateUp(const FeedForwardWeights& tile) {
    const int64_t count = tile.gate.weight.rows;
    Apply(model_, rows_, x_,
          {{tile.gate, Columns(gate_up_, x_.rows, up_, count)},
           {tile.up, Columns(gate_up_, x_.rows, inner_ + up_, count)}});
    up_ += count;
    if (up_ < inner_) return;
    model_.ops->SwiGlu(Columns(gate_up_, x_.rows, 0, inner_),
                       Columns(gate_up_, x_.rows, inner_, inner_), ffn_);
  }

  const Model& model_;
  const Batch& rows_;
  const Matrix x_, out_;
  int64_t inner_ = 0;
  Matrix gate_up_, ffn_;
  int64_t up_ = 0, down_ = 0;  // outputs that are there
};

}  // namespace

absl::StatusOr<const FeedForwardWeights*> FeedForwardHere(WeightSource& weights, int layer,
                                                          int tile) {
  absl::StatusOr<const FeedForwardWeights*> here = weights.FeedForward(layer, tile);
  if (!here.ok() || *here != nullptr) return here;
  return absl::FailedPreconditionError("layer " + std::to_string(layer) +
                                       ": its feed-forward weights are not on this instance");
}

void MultiplyFeedForward(const Model& model, const FeedForwardWeights& weights, const Batch& rows,
                         const Matrix& x, const Matrix& out, RunState& state) {
  const int64_t inner = weights.up.weight.rows;
  const Matrix gate_up = Compact(state.gate_up, x.rows, 2 * inner);
  const Matrix gate = Columns(gate_up, x.rows, 0, inner);
  const Matrix up = Columns(gate_up, x.rows, inner, inner);
  const Matrix ffn = Compact(state.ffn, x.rows, inner);
  Apply(model, rows, x, {{weights.gate, gate}, {weights.up, up}});
  model.ops->SwiGlu(gate, up, ffn);
  Apply(model, rows, ffn, {{weights.down, out}});
}

absl::Status LocalFeedForward::Run(const LayerWeights& w, WeightSource& weights, int layer,
                                   const Batch& rows) {
  absl::StatusOr<const FeedForwardWeights*> here = FeedForwardHere(weights, layer, 0);
  if (!here.ok()) return here.status();
  const int64_t tokens = rows.tokens();
  const Matrix projected = FirstRows(state_.projected, tokens);
  const Matrix normed = FirstRows(state_.normed, tokens);
  if (tokens > 0) {
    model_.ops->AddRmsNorm(FirstRows(state_.residual, tokens), projected, w.ffn_norm,
                           model_.config->rms_norm_eps, normed);
  }
  const int tiles = weights.Tiles(layer);
  if (tiles == 1) {
    if (tokens > 0) MultiplyFeedForward(model_, **here, rows, normed, projected, state_);
    weights.Used(layer, 0);
    return absl::OkStatus();
  }
  TileProducts products(model_, rows, normed, projected, state_);
  for (int tile = 0; tile < tiles; ++tile) {
    if (tile > 0) here = FeedForwardHere(weights, layer, tile);
    if (!here.ok()) return here.status();
    if (tokens > 0) products.Multiply(**here);
    weights.Used(layer, tile);
  }
  return absl::OkStatus();
}

}  // namespace skein::engine
