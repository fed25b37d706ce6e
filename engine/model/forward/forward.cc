#include "engine/model/forward/forward.h"

#include <cmath>
#include <numeric>

#include "engine/model/forward/forward_parts.h"
#include "engine/model/forward/layer_parts.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

Matrix RowsOf(const Matrix& m, const RowRun& run) {
  auto* data = static_cast<std::byte*>(m.data) +
               run.begin * m.stride * static_cast<int64_t>(BytesOf(m.dtype));
  return {data, m.dtype, run.count, m.cols, m.stride};
}

// The span of `sequences` that holds `row`; spans before `from` are over.
size_t SpanOf(const std::vector<SequenceSpan>& sequences, int64_t row, size_t from) {
  while (row >= sequences[from].token_begin + sequences[from].token_count) ++from;
  return from;
}

// The part of a layer after its KV.
void FinishLayer(const Model& model, const Batch& batch, int layer, RunState& state) {
  MakeQueries(model, batch, layer, state);
  model.ops->PagedAttention(FirstRows(state.query, batch.tokens()), batch.sequences,
                            {state.kv[layer], model.kv}, AttentionScale(model),
                            FirstRows(state.attention, batch.tokens()), /*lse=*/{});
  ProjectAttention(model, batch, layer, state);
  FeedForward(model, batch, layer, state);
}

}  // namespace

Matrix AsHeads(const Matrix& x, int head_dim) {
  return {x.data, x.dtype, x.rows * x.cols / head_dim, head_dim, head_dim};
}

void Apply(const Model& model, const Batch& batch, const Matrix& x, const Linear& linear,
           const Matrix& out) {
  const int64_t skinny_gemm = model.ops->SkinnyRowsMax(x.dtype, linear.weight.dtype);
  for (const RowRun& run : RunsOf(batch.sequences, batch.padding, skinny_gemm)) {
    model.ops->MatMul(RowsOf(x, run), linear.weight, linear.bias, RowsOf(out, run));
  }
}

Batch LogitBatch(const Batch& batch) {
  Batch selected;
  size_t source = 0, last_source = batch.sequences.size();
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const int32_t row = batch.logit_rows[i];
    source = SpanOf(batch.sequences, row, source);
    if (source == last_source && row == batch.logit_rows[i - 1] + 1) {
      ++selected.sequences.back().token_count;
    } else {
      SequenceSpan span = batch.sequences[source];
      span.position += row - span.token_begin;
      span.token_begin = static_cast<int64_t>(i);
      span.token_count = 1;
      selected.sequences.push_back(span);
    }
    last_source = source;
    selected.ids.push_back(batch.ids[row]);
    selected.positions.push_back(batch.positions[row]);
  }
  return selected;
}

void WriteKv(const Model& model, const Batch& batch, int layer, RunState& state) {
  const ModelConfig& config = *model.config;
  const LayerWeights& w = model.weights->layers[layer];
  Ops& ops = *model.ops;
  const int64_t tokens = batch.tokens();
  const Matrix normed = FirstRows(state.normed, tokens);
  const Matrix key = FirstRows(state.key, tokens);
  const Matrix value = FirstRows(state.value, tokens);

  const Matrix residual = FirstRows(state.residual, tokens);
  if (layer == 0) {
    ops.RmsNorm(residual, w.attention_norm, config.rms_norm_eps, normed);
  } else {
    ops.AddRmsNorm(residual, FirstRows(state.projected, tokens), w.attention_norm,
                   config.rms_norm_eps, normed);
  }
  Apply(model, batch, normed, w.key, key);
  Apply(model, batch, normed, w.value, value);
  if (config.qk_norm) {
    const Matrix heads = AsHeads(key, config.head_dim);
    ops.RmsNorm(heads, w.key_norm, config.rms_norm_eps, heads);
  }
  ops.StoreKv(key, value, batch.sequences, {state.kv[layer], model.kv},
              {batch.positions, model.rope});
}

Batch KeepLogitRows(const Model& model, const Batch& batch, int layer, RunState& state) {
  if (static_cast<int64_t>(batch.logit_rows.size()) + batch.padding == batch.tokens()) return batch;
  Batch selected = LogitBatch(batch);
  const int64_t rows = selected.tokens();
  if (rows == 0) return selected;
  model.ops->Embed(batch.logit_rows, FirstRows(state.residual, batch.tokens()),
                   FirstRows(state.projected, rows));  // gathers
  std::vector<int32_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  model.ops->Embed(all, FirstRows(state.projected, rows), FirstRows(state.residual, rows));
  model.ops->RmsNorm(FirstRows(state.residual, rows), model.weights->layers[layer].attention_norm,
                     model.config->rms_norm_eps, FirstRows(state.normed, rows));
  return selected;
}

void MakeQueries(const Model& model, const Batch& batch, int layer, RunState& state) {
  const ModelConfig& config = *model.config;
  const LayerWeights& w = model.weights->layers[layer];
  const Matrix query = FirstRows(state.query, batch.tokens());
  Apply(model, batch, FirstRows(state.normed, batch.tokens()), w.query, query);
  if (config.qk_norm) {
    const Matrix heads = AsHeads(query, config.head_dim);
    model.ops->RmsNorm(heads, w.query_norm, config.rms_norm_eps, heads);
  }
  model.ops->Rope(query, batch.positions, model.rope);
}

float AttentionScale(const Model& model) {
  return 1.0f / std::sqrt(static_cast<float>(model.config->head_dim));
}

void ProjectAttention(const Model& model, const Batch& batch, int layer, RunState& state) {
  const int64_t tokens = batch.tokens();
  Apply(model, batch, FirstRows(state.attention, tokens),
        model.weights->layers[layer].attention_out, FirstRows(state.projected, tokens));
}

void FeedForward(const Model& model, const Batch& batch, int layer, RunState& state) {
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

  ops.AddRmsNorm(residual, projected, w.ffn_norm, config.rms_norm_eps, normed);
  if (!w.gate_up.empty()) {
    Apply(model, batch, normed, {w.gate_up, {}}, gate_up);
  } else {
    Apply(model, batch, normed, w.gate, gate);
    Apply(model, batch, normed, w.up, up);
  }
  ops.SwiGlu(gate, up, ffn);
  Apply(model, batch, ffn, w.down, projected);
}

void EndLayers(const Model& model, const Batch& batch, RunState& state) {
  model.ops->Add(FirstRows(state.residual, batch.tokens()),
                 FirstRows(state.projected, batch.tokens()));
}

std::vector<RowRun> RunsOf(std::span<const SequenceSpan> sequences, int64_t padding,
                           int64_t skinny_gemm) {
  std::vector<RowRun> runs;
  int64_t end = 0;
  const auto add = [&](int64_t begin, int64_t count) {
    const bool fits = !runs.empty() && runs.back().count + count <= skinny_gemm;
    if (fits) {
      runs.back().count += count;
    } else {
      runs.push_back({begin, count});
    }
    end = begin + count;
  };
  for (const SequenceSpan& s : sequences) add(s.token_begin, s.token_count);
  for (int64_t i = 0; i < padding; ++i) add(end, 1);
  return runs;
}

void RunLayers(const Model& model, const Batch& batch, const std::function<void(int)>& layer_done,
               RunState& state) {
  model.ops->Embed(batch.ids, model.weights->embedding, FirstRows(state.residual, batch.tokens()));
  const int last = model.config->num_layers - 1;
  for (int layer = 0; layer < last; ++layer) {
    WriteKv(model, batch, layer, state);
    if (layer_done) layer_done(layer);
    FinishLayer(model, batch, layer, state);
  }
  WriteKv(model, batch, last, state);
  if (layer_done) layer_done(last);
  if (batch.logit_rows.empty()) return;
  const Batch selected = KeepLogitRows(model, batch, last, state);
  FinishLayer(model, selected, last, state);
  EndLayers(model, selected, state);
}

void ComputeLogits(const Model& model, int64_t first, int64_t count, RunState& state) {
  const Matrix& residual = state.residual;
  SKEIN_CHECK(first >= 0 && first + count <= residual.rows);
  const ConstMatrix rows = {static_cast<const float*>(residual.data) + first * residual.stride,
                            DType::kF32, count, residual.cols, residual.stride};
  const Matrix normed = FirstRows(state.last_normed, count);
  const ModelWeights& w = *model.weights;
  model.ops->RmsNorm(rows, w.final_norm, model.config->rms_norm_eps, normed);
  model.ops->MatMul(normed, w.lm_head, {}, FirstRows(state.logits, count));
}

}  // namespace skein::engine
