#include "engine/model/group/group_forward.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "engine/model/forward/forward_parts.h"
#include "engine/model/forward/layer_parts.h"
#include "engine/model/group/group_weights.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

// A rectangle of `m`.
Matrix Part(const Matrix& m, const ShardRange& rows, const ShardRange& cols) {
  SKEIN_CHECK(rows.end() <= m.rows && cols.end() <= m.cols);
  auto* data = static_cast<std::byte*>(m.data) +
               (rows.begin * m.stride + cols.begin) * static_cast<int64_t>(BytesOf(m.dtype));
  return {data, m.dtype, rows.count, cols.count, m.stride};
}

Matrix ColumnsOf(const Matrix& m, const ShardRange& cols) { return Part(m, {0, m.rows}, cols); }
Matrix RowsOf(const Matrix& m, const ShardRange& rows) { return Part(m, rows, {0, m.cols}); }

// The bytes of a matrix without gaps.
std::span<std::byte> BytesOf(const Matrix& m) {
  SKEIN_CHECK(m.rows <= 1 || m.stride == m.cols);
  return {static_cast<std::byte*>(m.data), static_cast<size_t>(m.rows * m.cols) * BytesOf(m.dtype)};
}

// The rows `range` of `batch`, as a batch of their own without logits.
Batch RowsOfBatch(const Batch& batch, const ShardRange& range) {
  Batch part;
  const auto begin = batch.ids.begin() + range.begin;
  const auto position = batch.positions.begin() + range.begin;
  part.ids.assign(begin, begin + range.count);
  part.positions.assign(position, position + range.count);
  for (SequenceSpan span : batch.sequences) {
    const int64_t first = std::max(span.token_begin, range.begin);
    const int64_t end = std::min(span.token_begin + span.token_count, range.end());
    if (first >= end) continue;
    span.position += first - span.token_begin;
    span.token_begin = first - range.begin;
    span.token_count = end - first;
    part.sequences.push_back(span);
  }
  return part;
}

// How many of the ascending `rows` are of each range.
std::vector<ShardRange> DealRows(const std::vector<int32_t>& rows,
                                 const std::vector<ShardRange>& ranges) {
  std::vector<ShardRange> dealt;
  for (const ShardRange& range : ranges) {
    const auto begin = std::lower_bound(rows.begin(), rows.end(), range.begin);
    const auto end = std::lower_bound(begin, rows.end(), range.end());
    dealt.push_back({begin - rows.begin(), end - begin});
  }
  return dealt;
}

ShardRange TimesHeadDim(const ShardRange& heads, int64_t begin, int head_dim) {
  return {(heads.begin - begin) * head_dim, heads.count * head_dim};
}

}  // namespace

absl::StatusOr<GroupBuffers> AllocateGroupBuffers(const LoadedModel& loaded, int ranks_max) {
  GroupBuffers buffers;
  absl::Status status;
  const auto allocate = [&](DType dtype, int64_t rows, int64_t cols) -> Matrix {
    auto buffer = DeviceBuffer::Allocate(loaded.device.get(),
                                         static_cast<size_t>(rows * cols) * BytesOf(dtype));
    if (!buffer.ok()) {
      status = buffer.status();
      return {};
    }
    buffers.owned.push_back(*std::move(buffer));
    return {buffers.owned.back().data(), dtype, rows, cols, cols};
  };
  const ModelConfig& config = loaded.config;
  const int64_t rows = loaded.tokens_max + ranks_max;
  const int64_t query = int64_t{(config.num_heads + 1) / 2} * config.head_dim;
  const int64_t row = query + int64_t{2} * ((config.num_kv_heads + 1) / 2) * config.head_dim;
  buffers.send = allocate(DType::kF32, rows, row);
  buffers.receive = allocate(DType::kF32, rows, row);
  buffers.returned = allocate(loaded.weights.activation, rows, query);
  buffers.joined = allocate(loaded.weights.activation, rows, query);
  buffers.logits = allocate(DType::kF32, loaded.state.logits.rows, config.vocab_size + ranks_max);
  if (!status.ok()) return status;
  return buffers;
}

GroupForward::GroupForward(LoadedModel* loaded, GroupBuffers* buffers, const GroupPart& part,
                           const ShardLayout& layout)
    : model_(loaded->model),
      state_(loaded->state),
      buffers_(*buffers),
      part_(part),
      layout_(layout),
      shape_(ShapeOf(loaded->config)) {}

absl::Status GroupForward::RunLayers(const Batch& batch,
                                     const std::function<void(int)>& layer_done) {
  row_ids_.resize(static_cast<size_t>(std::max(batch.tokens(), state_.logits.rows)));
  std::iota(row_ids_.begin(), row_ids_.end(), 0);
  Deal(batch, TokensOf(batch.tokens(), layout_.mode.sp));
  model_.ops->Embed(own_.ids, model_.weights->embedding, FirstRows(state_.residual, own_tokens()));
  const int layers = model_.config->num_layers;
  const Batch* attending = &batch;
  Batch selected;
  for (int layer = 0; layer < layers; ++layer) {
    const LayerWeights w =
        SliceLayer(model_.weights->layers[static_cast<size_t>(layer)], layout_, shape_.head_dim);
    Project(w);
    const absl::Status exchanged = ExchangeToAttention();
    if (!exchanged.ok()) return exchanged;
    model_.ops->StoreKv(key_, value_, batch.sequences, {state_.kv[layer], model_.kv}, {});
    if (layer_done) layer_done(layer);
    if (layer + 1 == layers) {
      if (batch.logit_rows.empty()) return absl::OkStatus();
      selected = KeepLogitRows(batch);
      attending = &selected;
    }
    const absl::StatusOr<Matrix> attention = Attend(layer, *attending);
    if (!attention.ok()) return attention.status();
    absl::Status added = AttentionOut(w, *attention);
    if (added.ok()) added = FeedForward(w);
    if (!added.ok()) return added;
  }
  return GatherResidual();
}

void GroupForward::Deal(const Batch& batch, std::vector<ShardRange> tokens_of) {
  tokens_of_ = std::move(tokens_of);
  own_ = RowsOfBatch(batch, tokens_of_[static_cast<size_t>(layout_.sp_rank)]);
}

Matrix GroupForward::Compact(const Matrix& buffer, int64_t rows, int64_t cols) {
  SKEIN_CHECK(rows * cols <= buffer.rows * buffer.cols);
  return {buffer.data, buffer.dtype, rows, cols, cols};
}

void GroupForward::Copy(const ConstMatrix& from, const Matrix& to) {
  const auto rows = static_cast<size_t>(to.rows);
  model_.ops->Embed(std::span<const int32_t>(row_ids_).first(rows), from, to);  // gathers
}

void GroupForward::Project(const LayerWeights& w) {
  const ModelConfig& config = *model_.config;
  Ops& ops = *model_.ops;
  const int64_t own = own_tokens(), dim = shape_.head_dim;
  const Matrix normed = FirstRows(state_.normed, own);
  ops.RmsNorm(FirstRows(state_.residual, own), w.attention_norm, config.rms_norm_eps, normed);
  query_ = Compact(state_.query, own, layout_.weight_heads.count * dim);
  key_ = Compact(state_.key, own, layout_.weight_kv_heads.count * dim);
  value_ = Compact(state_.value, own, layout_.weight_kv_heads.count * dim);
  Apply(model_, own_, normed, w.query, query_);
  Apply(model_, own_, normed, w.key, key_);
  Apply(model_, own_, normed, w.value, value_);
  if (config.qk_norm) {
    const Matrix query_heads = AsHeads(query_, config.head_dim);
    const Matrix key_heads = AsHeads(key_, config.head_dim);
    ops.RmsNorm(query_heads, w.query_norm, config.rms_norm_eps, query_heads);
    ops.RmsNorm(key_heads, w.key_norm, config.rms_norm_eps, key_heads);
  }
  ops.Rope(query_, own_.positions, model_.rope);
  ops.Rope(key_, own_.positions, model_.rope);
}

// Packs the heads of the own tokens with which sp_rank `to` attends: one row [q | k | v] for each
// token.
void GroupForward::PackFor(int to, const Matrix& block) {
  const int ranks = layout_.mode.ranks(), dim = shape_.head_dim;
  const int rank = layout_.tp_rank * layout_.mode.sp + to;
  const ShardRange q = TimesHeadDim(HeadsOf(shape_, ranks, rank), layout_.weight_heads.begin, dim);
  const ShardRange kv =
      TimesHeadDim(KvHeadsOf(shape_, ranks, rank), layout_.weight_kv_heads.begin, dim);
  Copy(ColumnsOf(query_, q), ColumnsOf(block, {0, q.count}));
  Copy(ColumnsOf(key_, kv), ColumnsOf(block, {q.count, kv.count}));
  Copy(ColumnsOf(value_, kv), ColumnsOf(block, {q.count + kv.count, kv.count}));
}

absl::Status GroupForward::ExchangeToAttention() {
  if (layout_.mode.sp == 1) return absl::OkStatus();
  const int64_t row = ToAttention(shape_, layout_, tokens_of_).row;
  const int64_t own = own_tokens();
  const Matrix sent = Compact(buffers_.send, own * layout_.mode.sp, row);
  const Matrix all = Compact(buffers_.receive, tokens_of_.back().end(), row);
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (int to = 0; to < layout_.mode.sp; ++to) {
    const Matrix block = RowsOf(sent, {to * own, own});
    PackFor(to, block);
    send.push_back(BytesOf(block));
    receive.push_back(BytesOf(RowsOf(all, tokens_of_[static_cast<size_t>(to)])));
  }
  const absl::Status moved = part_.sp->AllToAll(send, receive, part_.deadline);
  if (!moved.ok()) return moved;
  const int64_t q = layout_.heads.count * shape_.head_dim;
  const int64_t kv = layout_.kv_heads.count * shape_.head_dim;
  query_ = ColumnsOf(all, {0, q});
  key_ = ColumnsOf(all, {q, kv});
  value_ = ColumnsOf(all, {q + kv, kv});
  return absl::OkStatus();
}

absl::StatusOr<Matrix> GroupForward::Attend(int layer, const Batch& batch) {
  const Matrix attention =
      Compact(state_.attention, batch.tokens(), layout_.heads.count * shape_.head_dim);
  model_.ops->PagedAttention(query_, batch.sequences, {state_.kv[layer], model_.kv},
                             AttentionScale(model_), attention, /*lse=*/{});
  return ExchangeFromAttention(attention);
}

absl::StatusOr<Matrix> GroupForward::ExchangeFromAttention(const Matrix& attention) {
  const int sp = layout_.mode.sp;
  if (sp == 1) return attention;
  const int64_t own = own_tokens(), row = attention.cols;
  const Matrix returned = Compact(buffers_.returned, own * sp, row);
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (int s = 0; s < sp; ++s) {
    send.push_back(BytesOf(RowsOf(attention, tokens_of_[static_cast<size_t>(s)])));
    receive.push_back(BytesOf(RowsOf(returned, {s * own, own})));
  }
  const absl::Status moved = part_.sp->AllToAll(send, receive, part_.deadline);
  if (!moved.ok()) return moved;
  const Matrix joined = Compact(buffers_.joined, own, sp * row);
  for (int s = 0; s < sp; ++s) {
    Copy(RowsOf(returned, {s * own, own}), ColumnsOf(joined, {s * row, row}));
  }
  return joined;
}

absl::Status GroupForward::AddSum(const Matrix& projected) {
  if (layout_.mode.tp > 1 && projected.rows > 0) {
    const absl::Status summed = part_.tp->AllReduce(projected.data, projected.rows * projected.cols,
                                                    DType::kF32, part_.deadline);
    if (!summed.ok()) return summed;
  }
  model_.ops->Add(FirstRows(state_.residual, projected.rows), projected);
  return absl::OkStatus();
}

absl::Status GroupForward::AttentionOut(const LayerWeights& w, const Matrix& attention) {
  const Matrix projected = FirstRows(state_.projected, own_tokens());
  Apply(model_, own_, attention, w.attention_out, projected);
  return AddSum(projected);
}

absl::Status GroupForward::FeedForward(const LayerWeights& w) {
  Ops& ops = *model_.ops;
  const int64_t own = own_tokens(), inner = layout_.intermediate.count;
  const Matrix normed = FirstRows(state_.normed, own);
  const Matrix gate_up = Compact(state_.gate_up, own, 2 * inner);
  const Matrix gate = ColumnsOf(gate_up, {0, inner});
  const Matrix up = ColumnsOf(gate_up, {inner, inner});
  const Matrix ffn = Compact(state_.ffn, own, inner);
  const Matrix projected = FirstRows(state_.projected, own);
  ops.RmsNorm(FirstRows(state_.residual, own), w.ffn_norm, model_.config->rms_norm_eps, normed);
  if (!w.gate_up.empty()) {
    Apply(model_, own_, normed, {w.gate_up, {}}, gate_up);
  } else {
    Apply(model_, own_, normed, w.gate, gate);
    Apply(model_, own_, normed, w.up, up);
  }
  ops.SwiGlu(gate, up, ffn);
  Apply(model_, own_, ffn, w.down, projected);
  return AddSum(projected);
}

Batch GroupForward::KeepLogitRows(const Batch& batch) {
  Batch selected = LogitBatch(batch);
  if (selected.tokens() == batch.tokens()) return selected;
  const ShardRange before = tokens_of_[static_cast<size_t>(layout_.sp_rank)];
  Deal(selected, DealRows(batch.logit_rows, tokens_of_));
  const ShardRange mine = tokens_of_[static_cast<size_t>(layout_.sp_rank)];
  std::vector<int32_t> own_rows;
  for (int64_t i = mine.begin; i < mine.end(); ++i) {
    own_rows.push_back(batch.logit_rows[static_cast<size_t>(i)] -
                       static_cast<int32_t>(before.begin));
  }
  model_.ops->Embed(own_rows, FirstRows(state_.residual, before.count),
                    FirstRows(state_.projected, mine.count));
  Copy(FirstRows(state_.projected, mine.count), FirstRows(state_.residual, mine.count));
  const Matrix queries = Compact(buffers_.send, selected.tokens(), query_.cols);
  model_.ops->Embed(batch.logit_rows, query_, queries);
  query_ = queries;
  return selected;
}

absl::Status GroupForward::GatherResidual() {
  if (layout_.mode.sp == 1) return absl::OkStatus();
  const Matrix own = FirstRows(state_.residual, own_tokens());
  const Matrix all = FirstRows(state_.projected, tokens_of_.back().end());
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (const ShardRange& theirs : tokens_of_) {
    send.push_back(BytesOf(own));
    receive.push_back(BytesOf(RowsOf(all, theirs)));
  }
  const absl::Status moved = part_.sp->AllToAll(send, receive, part_.deadline);
  if (moved.ok()) Copy(all, FirstRows(state_.residual, all.rows));
  return moved;
}

absl::StatusOr<ConstMatrix> GroupForward::Logits(int64_t first, int64_t count) {
  const int ranks = layout_.mode.ranks();
  const int64_t width = (shape_.vocab_size + ranks - 1) / ranks;
  const Matrix normed = FirstRows(state_.last_normed, count);
  const Matrix slices = Compact(buffers_.logits, ranks * count, width);
  const Matrix slice = RowsOf(slices, {layout_.rank * count, count});
  model_.ops->RmsNorm(RowsOf(state_.residual, {first, count}), model_.weights->final_norm,
                      model_.config->rms_norm_eps, normed);
  model_.ops->MatMul(normed, SliceRows(model_.weights->lm_head, layout_.vocabulary), {},
                     ColumnsOf(slice, {0, layout_.vocabulary.count}));
  const absl::Status gathered =
      part_.all->AllGather(BytesOf(slice), BytesOf(slices), part_.deadline);
  if (!gathered.ok()) return gathered;
  const Matrix logits = FirstRows(state_.logits, count);
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t begin = std::min<int64_t>(shape_.vocab_size, rank * width);
    const int64_t cols = std::min<int64_t>(width, shape_.vocab_size - begin);
    Copy(Part(slices, {rank * count, count}, {0, cols}), ColumnsOf(logits, {begin, cols}));
  }
  return logits;
}

}  // namespace skein::engine
