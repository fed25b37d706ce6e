// The parts of a layer, in the order in which it runs them. Internal to engine/model. All work on
// the first batch.tokens() rows of the state, which are at least one.
#pragma once

#include "engine/model/forward/forward.h"
#include "engine/model/forward/run_state.h"

namespace skein::engine {

// Begins a layer: residual += state.projected (but for the first layer), then the layer's keys and
// values of every row, rotated, into the KV. Leaves the layer's normed input in state.normed.
void WriteKv(const Model& model, const Batch& batch, int layer, RunState& state);

// For the last layer, after WriteKv: the rows of `batch` that need logits, as a batch of their own
// whose rows are now the first of residual and normed. May be none.
Batch KeepLogitRows(const Model& model, const Batch& batch, int layer, RunState& state);

// state.query = the rotated queries of state.normed.
void MakeQueries(const Model& model, const Batch& batch, int layer, RunState& state);

// The factor of attention's scores.
float AttentionScale(const Model& model);

// state.projected = the projection of state.attention, which FeedForward adds to the residual.
void ProjectAttention(const Model& model, const Batch& batch, int layer, RunState& state);

// residual += state.projected; then state.projected = down(silu(gate(x)) * up(x)), x =
// norm(residual), which the next layer's WriteKv adds, or EndLayers.
void FeedForward(const Model& model, const Batch& batch, int layer, RunState& state);

// residual += state.projected, behind the last layer.
void EndLayers(const Model& model, const Batch& batch, RunState& state);

}  // namespace skein::engine
