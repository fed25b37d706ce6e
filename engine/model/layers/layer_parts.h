// Parts of a layer that its phases share. Internal to engine/model. All work on the first
// batch.tokens() rows of the state, with the weights `w` of the layer.
#pragma once

#include "engine/model/forward/forward.h"
#include "engine/model/forward/run_state.h"

namespace skein::engine {

// residual += state.projected (but for the first layer); state.normed = the layer's normed input.
void NormLayer(const Model& model, const LayerWeights& w, int64_t rows, int layer, RunState& state);

// NormLayer, then the layer's keys and values of every row, rotated, into the KV. Their products
// are one call with those of the queries, which MakeQueries takes up. Not in the last layer, whose
// queries KeepLogitRows makes, of the rows that need logits: which rows other sequences need then
// changes no bit of the KV.
void WriteKv(const Model& model, const LayerWeights& w, const Batch& batch, int layer,
             RunState& state);

// The end of WriteKv: state.key, normalised and rotated, and state.value into the KV.
void StoreKeys(const Model& model, const LayerWeights& w, const Batch& batch, int layer,
               RunState& state);

// The rows of `batch` that need logits, as a batch of their own whose rows are now the first of
// residual and normed. May be none.
Batch SelectLogitRows(const Model& model, const LayerWeights& w, const Batch& batch,
                      RunState& state);

// For the last layer, after WriteKv: SelectLogitRows, and the products of their queries.
Batch KeepLogitRows(const Model& model, const LayerWeights& w, const Batch& batch, RunState& state);

// state.query = the rotated queries of the batch. After WriteKv, and in the last layer
// KeepLogitRows.
void MakeQueries(const Model& model, const LayerWeights& w, const Batch& batch, RunState& state);

// The factor of attention's scores.
float AttentionScale(const Model& model);

// state.projected = the projection of `attention`, whose rows are the batch's.
void ProjectAttention(const Model& model, const LayerWeights& w, const Batch& batch,
                      const Matrix& attention, RunState& state);

// residual += state.projected, behind the last layer.
void EndLayers(const Model& model, const Batch& batch, RunState& state);

}  // namespace skein::engine
