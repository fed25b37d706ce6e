#include "engine/model/layers/local_feed_forward.h"

#include <string>

#include "engine/model/forward/forward_parts.h"

namespace skein::engine {

absl::StatusOr<const FeedForwardWeights*> FeedForwardHere(WeightSource& weights, int layer) {
  absl::StatusOr<const FeedForwardWeights*> here = weights.FeedForward(layer);
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
  const absl::StatusOr<const FeedForwardWeights*> here = FeedForwardHere(weights, layer);
  if (!here.ok()) return here.status();
  const int64_t tokens = rows.tokens();
  if (tokens > 0) {
    const Matrix projected = FirstRows(state_.projected, tokens);
    const Matrix normed = FirstRows(state_.normed, tokens);
    model_.ops->AddRmsNorm(FirstRows(state_.residual, tokens), projected, w.ffn_norm,
                           model_.config->rms_norm_eps, normed);
    MultiplyFeedForward(model_, **here, rows, normed, projected, state_);
  }
  weights.Used(layer);
  return absl::OkStatus();
}

}  // namespace skein::engine
