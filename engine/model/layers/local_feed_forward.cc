#include "engine/model/layers/local_feed_forward.h"

#include <string>

#include "engine/model/forward/forward_parts.h"

namespace skein::engine {

absl::Status LocalFeedForward::Run(const LayerWeights& w, WeightSource& weights, int layer,
                                   const Batch& rows) {
  const absl::StatusOr<const FeedForwardWeights*> here = weights.FeedForward(layer);
  if (!here.ok()) return here.status();
  if (*here == nullptr) {
    return absl::FailedPreconditionError("layer " + std::to_string(layer) +
                                         ": its feed-forward weights are not on this instance");
  }
  const FeedForwardWeights& ffn_weights = **here;
  const int64_t tokens = rows.tokens();
  if (tokens > 0) {
    Ops& ops = *model_.ops;
    const int64_t inner = ffn_weights.up.weight.rows;
    const Matrix projected = FirstRows(state_.projected, tokens);
    const Matrix normed = FirstRows(state_.normed, tokens);
    const Matrix gate_up = Compact(state_.gate_up, tokens, 2 * inner);
    const Matrix gate = Columns(gate_up, tokens, 0, inner);
    const Matrix up = Columns(gate_up, tokens, inner, inner);
    const Matrix ffn = Compact(state_.ffn, tokens, inner);
    ops.AddRmsNorm(FirstRows(state_.residual, tokens), projected, w.ffn_norm,
                   model_.config->rms_norm_eps, normed);
    Apply(model_, rows, normed, {{ffn_weights.gate, gate}, {ffn_weights.up, up}});
    ops.SwiGlu(gate, up, ffn);
    Apply(model_, rows, ffn, {{ffn_weights.down, projected}});
  }
  weights.Used(layer);
  return absl::OkStatus();
}

}  // namespace skein::engine
