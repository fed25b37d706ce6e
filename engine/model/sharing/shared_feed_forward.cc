#include "engine/model/sharing/shared_feed_forward.h"

#include <cstring>

namespace skein::engine {

absl::Status SharedFeedForward::Run(const LayerWeights& w, WeightSource& weights, int layer,
                                    const Batch& rows) {
  const int64_t tokens = rows.tokens();
  const int owner = owners_.OwnerOf(layer);
  if (calls_ == nullptr || tokens > call_rows_max_) return local_.Run(w, weights, layer, rows);
  if (tokens == 0) return absl::OkStatus();
  if (!calls_->Reaches(owner)) return local_.Run(w, weights, layer, rows);
  const Matrix projected = FirstRows(state_.projected, tokens);
  model_.ops->AddRmsNorm(FirstRows(state_.residual, tokens), projected, w.ffn_norm,
                         model_.config->rms_norm_eps, calls_->In(owner, tokens));
  if (calls_->Call(owner, layer, rows, projected).ok()) return absl::OkStatus();
  // The residual has what was to be added.
  for (int64_t row = 0; row < tokens; ++row) {
    std::memset(static_cast<float*>(projected.data) + row * projected.stride, 0,
                static_cast<size_t>(projected.cols) * sizeof(float));
  }
  return local_.Run(w, weights, layer, rows);
}

}  // namespace skein::engine
