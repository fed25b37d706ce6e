#include "engine/model/ring/tensor_feed_forward.h"

#include "engine/model/layers/local_feed_forward.h"

namespace skein::engine {

absl::Status TensorFeedForward::Run(const LayerWeights& w, WeightSource& weights, int layer,
                                    const Batch& rows) {
  const absl::StatusOr<const FeedForwardWeights*> here = FeedForwardHere(weights, layer, 0);
  if (!here.ok()) return here.status();
  const int64_t tokens = rows.tokens();
  const Matrix projected = FirstRows(state_.projected, tokens);
  const Matrix normed = FirstRows(state_.normed, tokens);
  if (tokens > 0) {
    model_.ops->AddRmsNorm(FirstRows(state_.residual, tokens), projected, w.ffn_norm,
                           model_.config->rms_norm_eps, normed);
  }
  for (const TensorRows::Piece& piece : tensor_.Pieces()) {
    const absl::StatusOr<Matrix> all = tensor_.Gather(piece, normed);
    if (!all.ok()) return all.status();
    const Matrix partial = tensor_.Partial(piece, projected.cols);
    MultiplyFeedForward(model_, **here, piece.all, *all, partial, state_);
    absl::Status summed = tensor_.ScatterSum(piece, partial, projected);
    if (!summed.ok()) return summed;
  }
  weights.Used(layer, 0);
  return absl::OkStatus();
}

}  // namespace skein::engine
