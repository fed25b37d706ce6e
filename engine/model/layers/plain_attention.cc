#include "engine/model/layers/plain_attention.h"

#include "engine/model/layers/layer_parts.h"

namespace skein::engine {

void PlainAttention::Begin() {
  model_.ops->Embed(rows_->ids, model_.weights->embedding,
                    FirstRows(state_.residual, rows_->tokens()));
}

absl::Status PlainAttention::WriteKv(const LayerWeights& w, int layer) {
  engine::WriteKv(model_, w, *rows_, layer, state_);
  return absl::OkStatus();
}

bool PlainAttention::KeepLogitRows(const LayerWeights& w, int /*layer*/) {
  selected_ =
      rows_->logit_rows.empty() ? Batch{} : engine::KeepLogitRows(model_, w, *rows_, state_);
  rows_ = &selected_;
  return rows_->tokens() > 0;
}

absl::Status PlainAttention::Attend(const LayerWeights& w, int layer) {
  const Matrix attention = FirstRows(state_.attention, rows_->tokens());
  MakeQueries(model_, w, *rows_, state_);
  model_.ops->PagedAttention(FirstRows(state_.query, rows_->tokens()), rows_->sequences,
                             {state_.kv[layer], model_.kv}, AttentionScale(model_), attention,
                             /*lse=*/{});
  ProjectAttention(model_, w, *rows_, attention, state_);
  return absl::OkStatus();
}

absl::Status PlainAttention::End() {
  if (rows_->tokens() > 0) EndLayers(model_, *rows_, state_);
  return absl::OkStatus();
}

}  // namespace skein::engine
