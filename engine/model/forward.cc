#include "engine/model/forward.h"

#include <cmath>

namespace skein::engine {
namespace {

// The rows of one head each: [T, heads * head_dim] as [T * heads, head_dim].
Matrix AsHeads(const Matrix& x, int head_dim) {
  return {x.data, x.dtype, x.rows * x.cols / head_dim, head_dim, head_dim};
}

void Apply(Ops& ops, ConstMatrix x, const Linear& linear, Matrix out) {
  ops.MatMul(x, linear.weight, linear.bias, out);
}

// residual += attention(norm(residual)); the layer's KV is written on the way.
void AttentionPart(const Model& model, const Batch& batch, int layer,
                   const std::function<void(int)>& layer_done, RunState& state) {
  const ModelConfig& config = *model.config;
  const LayerWeights& w = model.weights->layers[layer];
  Ops& ops = *model.ops;
  const int64_t tokens = batch.tokens();
  const Matrix residual = FirstRows(state.residual, tokens);
  const Matrix normed = FirstRows(state.normed, tokens);
  const Matrix query = FirstRows(state.query, tokens);
  const Matrix key = FirstRows(state.key, tokens);
  const Matrix value = FirstRows(state.value, tokens);
  const Matrix attention = FirstRows(state.attention, tokens);
  const Matrix projected = FirstRows(state.projected, tokens);
  const KvLayerView kv{state.kv[layer], model.kv};

  ops.RmsNorm(residual, w.attention_norm, config.rms_norm_eps, normed);
  Apply(ops, normed, w.query, query);
  Apply(ops, normed, w.key, key);
  Apply(ops, normed, w.value, value);
  if (config.qk_norm) {
    const Matrix query_heads = AsHeads(query, config.head_dim);
    const Matrix key_heads = AsHeads(key, config.head_dim);
    ops.RmsNorm(query_heads, w.query_norm, config.rms_norm_eps, query_heads);
    ops.RmsNorm(key_heads, w.key_norm, config.rms_norm_eps, key_heads);
  }
  ops.Rope(query, batch.positions, model.rope);
  ops.Rope(key, batch.positions, model.rope);
  ops.StoreKv(key, value, batch.sequences, kv);
  if (layer_done) layer_done(layer);

  const float scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim));
  ops.PagedAttention(query, batch.sequences, kv, scale, attention, /*lse=*/{});
  Apply(ops, attention, w.attention_out, projected);
  ops.Add(residual, projected);
}

// residual += down(silu(gate(x)) * up(x)), x = norm(residual).
void FeedForwardPart(const Model& model, const Batch& batch, int layer, RunState& state) {
  const ModelConfig& config = *model.config;
  const LayerWeights& w = model.weights->layers[layer];
  Ops& ops = *model.ops;
  const int64_t tokens = batch.tokens();
  const int64_t inner = config.intermediate_size;
  const Matrix residual = FirstRows(state.residual, tokens);
  const Matrix normed = FirstRows(state.normed, tokens);
  const Matrix gate_up = FirstRows(state.gate_up, tokens);
  const Matrix gate = Columns(state.gate_up, tokens, 0, inner);
  const Matrix up = Columns(state.gate_up, tokens, inner, inner);
  const Matrix ffn = FirstRows(state.ffn, tokens);
  const Matrix projected = FirstRows(state.projected, tokens);

  ops.RmsNorm(residual, w.ffn_norm, config.rms_norm_eps, normed);
  if (!w.gate_up.empty()) {
    ops.MatMul(normed, w.gate_up, {}, gate_up);
  } else {
    Apply(ops, normed, w.gate, gate);
    Apply(ops, normed, w.up, up);
  }
  ops.SwiGlu(gate, up, ffn);
  Apply(ops, ffn, w.down, projected);
  ops.Add(residual, projected);
}

}  // namespace

void RunLayers(const Model& model, const Batch& batch, const std::function<void(int)>& layer_done,
               RunState& state) {
  model.ops->Embed(batch.ids, model.weights->embedding, FirstRows(state.residual, batch.tokens()));
  for (int layer = 0; layer < model.config->num_layers; ++layer) {
    AttentionPart(model, batch, layer, layer_done, state);
    FeedForwardPart(model, batch, layer, state);
  }
}

void ComputeLogits(const Model& model, std::span<const int32_t> rows, RunState& state) {
  const auto count = static_cast<int64_t>(rows.size());
  const Matrix last_residual = FirstRows(state.last_residual, count);
  const Matrix last_normed = FirstRows(state.last_normed, count);
  const ModelWeights& w = *model.weights;
  model.ops->Embed(rows, state.residual, last_residual);  // gathers the rows
  model.ops->RmsNorm(last_residual, w.final_norm, model.config->rms_norm_eps, last_normed);
  model.ops->MatMul(last_normed, w.lm_head, {}, FirstRows(state.logits, count));
}

}  // namespace skein::engine
