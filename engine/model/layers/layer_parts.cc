#include "engine/model/layers/layer_parts.h"

#include <cmath>
#include <numeric>

#include "engine/model/forward/forward_parts.h"

namespace skein::engine {

namespace {

// The queries of state.normed as their products are: MakeQueries goes on with them.
void ProjectQueries(const Model& model, const LayerWeights& w, const Batch& batch,
                    RunState& state) {
  const int64_t rows = batch.tokens();
  Apply(model, batch, FirstRows(state.normed, rows), {{w.query, FirstRows(state.query, rows)}});
}

}  // namespace

void NormLayer(const Model& model, const LayerWeights& w, int64_t rows, int layer,
               RunState& state) {
  const float eps = model.config->rms_norm_eps;
  const Matrix residual = FirstRows(state.residual, rows);
  const Matrix normed = FirstRows(state.normed, rows);
  if (layer == 0) {
    model.ops->RmsNorm(residual, w.attention_norm, eps, normed);
  } else {
    model.ops->AddRmsNorm(residual, FirstRows(state.projected, rows), w.attention_norm, eps,
                          normed);
  }
}

void WriteKv(const Model& model, const LayerWeights& w, const Batch& batch, int layer,
             RunState& state) {
  const ModelConfig& config = *model.config;
  const int64_t tokens = batch.tokens();
  const Matrix normed = FirstRows(state.normed, tokens);
  const Matrix query = FirstRows(state.query, tokens);
  const Matrix key = FirstRows(state.key, tokens);
  const Matrix value = FirstRows(state.value, tokens);
  NormLayer(model, w, tokens, layer, state);
  if (layer + 1 < config.num_layers) {
    Apply(model, batch, normed, {{w.query, query}, {w.key, key}, {w.value, value}});
  } else {
    Apply(model, batch, normed, {{w.key, key}, {w.value, value}});
  }
  StoreKeys(model, w, batch, layer, state);
}

void StoreKeys(const Model& model, const LayerWeights& w, const Batch& batch, int layer,
               RunState& state) {
  const ModelConfig& config = *model.config;
  const Matrix key = FirstRows(state.key, batch.tokens());
  if (config.qk_norm) model.ops->RmsNorm(key, w.key_norm, config.rms_norm_eps, key);
  model.ops->StoreKv(key, FirstRows(state.value, batch.tokens()), batch.sequences,
                     {state.kv[layer], model.kv}, {batch.positions, model.rope});
}

Batch KeepLogitRows(const Model& model, const LayerWeights& w, const Batch& batch,
                    RunState& state) {
  Batch selected = SelectLogitRows(model, w, batch, state);
  if (selected.tokens() > 0) ProjectQueries(model, w, selected, state);
  return selected;
}

Batch SelectLogitRows(const Model& model, const LayerWeights& w, const Batch& batch,
                      RunState& state) {
  if (static_cast<int64_t>(batch.logit_rows.size()) + batch.padding == batch.tokens()) {
    return batch;
  }
  Batch selected = LogitBatch(batch);
  const int64_t rows = selected.tokens();
  if (rows == 0) return selected;
  model.ops->Embed(batch.logit_rows, FirstRows(state.residual, batch.tokens()),
                   FirstRows(state.projected, rows));  // gathers
  std::vector<int32_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  model.ops->Embed(all, FirstRows(state.projected, rows), FirstRows(state.residual, rows));
  model.ops->RmsNorm(FirstRows(state.residual, rows), w.attention_norm, model.config->rms_norm_eps,
                     FirstRows(state.normed, rows));
  return selected;
}

void MakeQueries(const Model& model, const LayerWeights& w, const Batch& batch, RunState& state) {
  const ModelConfig& config = *model.config;
  const Matrix query = FirstRows(state.query, batch.tokens());
  if (config.qk_norm) model.ops->RmsNorm(query, w.query_norm, config.rms_norm_eps, query);
  model.ops->Rope(query, batch.positions, model.rope);
}

float AttentionScale(const Model& model) {
  return 1.0f / std::sqrt(static_cast<float>(model.config->head_dim));
}

void ProjectAttention(const Model& model, const LayerWeights& w, const Batch& batch,
                      const Matrix& attention, RunState& state) {
  Apply(model, batch, attention, {{w.attention_out, FirstRows(state.projected, batch.tokens())}});
}

void EndLayers(const Model& model, const Batch& batch, RunState& state) {
  model.ops->Add(FirstRows(state.residual, batch.tokens()),
                 FirstRows(state.projected, batch.tokens()));
}

}  // namespace skein::engine
