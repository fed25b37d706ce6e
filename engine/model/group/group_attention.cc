#include "engine/model/group/group_attention.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "engine/model/forward/forward_parts.h"
#include "engine/model/layers/layer_parts.h"
#include "engine/model/layers/matrix_parts.h"
#include "engine/model/layers/sliced_weights.h"

namespace skein::engine {
namespace {

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

absl::Status SumProjected(const GroupStep& step, int64_t rows) {
  if (step.layout.mode.tp == 1 || rows == 0) return absl::OkStatus();
  const Matrix projected = FirstRows(step.state.projected, rows);
  return step.part.tp->AllReduce(projected.data, rows * projected.cols, DType::kF32,
                                 step.part.deadline);
}

GroupAttention::GroupAttention(const GroupStep& step, const Batch* batch)
    : step_(step), shape_(ShapeOf(*step.model.config)), attending_(batch) {}

void GroupAttention::Begin() {
  const Batch& batch = *attending_;
  row_ids_.resize(static_cast<size_t>(std::max(batch.tokens(), step_.state.logits.rows)));
  std::iota(row_ids_.begin(), row_ids_.end(), 0);
  Deal(batch, TokensOf(batch.tokens(), step_.layout.mode.sp));
  step_.model.ops->Embed(own_.ids, step_.model.weights->embedding,
                         FirstRows(step_.state.residual, own_tokens()));
}

absl::Status GroupAttention::WriteKv(const LayerWeights& w, int layer) {
  NormLayer(step_.model, w, own_tokens(), layer, step_.state);
  Project(w);
  const absl::Status exchanged = ExchangeToAttention();
  if (!exchanged.ok()) return exchanged;
  step_.model.ops->StoreKv(key_, value_, attending_->sequences,
                           {step_.state.kv[layer], step_.model.kv}, {});
  return absl::OkStatus();
}

// This rank's queries are those of all tokens already; so only rows are left out.
bool GroupAttention::KeepLogitRows(const LayerWeights& /*w*/, int /*layer*/) {
  const Batch& batch = *attending_;
  selected_ = LogitBatch(batch);
  attending_ = &selected_;
  if (selected_.tokens() == batch.tokens()) return true;
  const ShardRange before = tokens_of_[static_cast<size_t>(step_.layout.sp_rank)];
  Deal(selected_, DealRows(batch.logit_rows, tokens_of_));
  if (selected_.tokens() == 0) return false;
  const ShardRange mine = tokens_of_[static_cast<size_t>(step_.layout.sp_rank)];
  std::vector<int32_t> own_rows;
  for (int64_t i = mine.begin; i < mine.end(); ++i) {
    own_rows.push_back(batch.logit_rows[static_cast<size_t>(i)] -
                       static_cast<int32_t>(before.begin));
  }
  step_.model.ops->Embed(own_rows, FirstRows(step_.state.residual, before.count),
                         FirstRows(step_.state.projected, mine.count));
  Copy(FirstRows(step_.state.projected, mine.count), FirstRows(step_.state.residual, mine.count));
  const Matrix queries = Compact(step_.buffers.send, selected_.tokens(), query_.cols);
  step_.model.ops->Embed(batch.logit_rows, query_, queries);
  query_ = queries;
  return true;
}

absl::Status GroupAttention::Attend(const LayerWeights& w, int layer) {
  const Matrix attention = Compact(step_.state.attention, attending_->tokens(),
                                   step_.layout.heads.count * shape_.head_dim);
  step_.model.ops->PagedAttention(query_, attending_->sequences,
                                  {step_.state.kv[layer], step_.model.kv},
                                  AttentionScale(step_.model), attention, /*lse=*/{});
  const absl::StatusOr<Matrix> own = ExchangeFromAttention(attention);
  if (!own.ok()) return own.status();
  ProjectAttention(step_.model, w, own_, *own, step_.state);
  return SumProjected(step_, own_tokens());
}

absl::Status GroupAttention::End() {
  if (attending_->tokens() == 0) return absl::OkStatus();
  EndLayers(step_.model, own_, step_.state);
  return GatherResidual();
}

void GroupAttention::Deal(const Batch& batch, std::vector<ShardRange> tokens_of) {
  tokens_of_ = std::move(tokens_of);
  own_ = RowsOfBatch(batch, tokens_of_[static_cast<size_t>(step_.layout.sp_rank)]);
}

void GroupAttention::Copy(const ConstMatrix& from, const Matrix& to) {
  const auto rows = static_cast<size_t>(to.rows);
  step_.model.ops->Embed(std::span<const int32_t>(row_ids_).first(rows), from, to);  // gathers
}

void GroupAttention::Project(const LayerWeights& w) {
  const ModelConfig& config = *step_.model.config;
  Ops& ops = *step_.model.ops;
  const int64_t own = own_tokens(), dim = shape_.head_dim;
  const Matrix normed = FirstRows(step_.state.normed, own);
  const int64_t q = step_.layout.weight_heads.count * dim;
  const int64_t kv = step_.layout.weight_kv_heads.count * dim;
  const Matrix qkv = Compact(step_.state.qkv, own, q + 2 * kv);
  query_ = ColumnsOf(qkv, {0, q});
  key_ = ColumnsOf(qkv, {q, kv});
  value_ = ColumnsOf(qkv, {q + kv, kv});
  Apply(step_.model, own_, normed, {{w.query, query_}, {w.key, key_}, {w.value, value_}});
  if (config.qk_norm) {
    ops.RmsNorm(query_, w.query_norm, config.rms_norm_eps, query_);
    ops.RmsNorm(key_, w.key_norm, config.rms_norm_eps, key_);
  }
  ops.Rope(query_, own_.positions, step_.model.rope);
  ops.Rope(key_, own_.positions, step_.model.rope);
}

// Packs the heads of the own tokens with which sp_rank `to` attends: one row [q | k | v] for each
// token.
void GroupAttention::PackFor(int to, const Matrix& block) {
  const int ranks = step_.layout.mode.ranks(), dim = shape_.head_dim;
  const int rank = step_.layout.tp_rank * step_.layout.mode.sp + to;
  const ShardRange q =
      TimesHeadDim(HeadsOf(shape_, ranks, rank), step_.layout.weight_heads.begin, dim);
  const ShardRange kv =
      TimesHeadDim(KvHeadsOf(shape_, ranks, rank), step_.layout.weight_kv_heads.begin, dim);
  Copy(ColumnsOf(query_, q), ColumnsOf(block, {0, q.count}));
  Copy(ColumnsOf(key_, kv), ColumnsOf(block, {q.count, kv.count}));
  Copy(ColumnsOf(value_, kv), ColumnsOf(block, {q.count + kv.count, kv.count}));
}

absl::Status GroupAttention::ExchangeToAttention() {
  if (step_.layout.mode.sp == 1) return absl::OkStatus();
  const int64_t row = ToAttention(shape_, step_.layout, tokens_of_).row;
  const int64_t own = own_tokens();
  const Matrix sent = Compact(step_.buffers.send, own * step_.layout.mode.sp, row);
  const Matrix all = Compact(step_.buffers.receive, tokens_of_.back().end(), row);
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (int to = 0; to < step_.layout.mode.sp; ++to) {
    const Matrix block = RowsOf(sent, {to * own, own});
    PackFor(to, block);
    send.push_back(BytesOf(block));
    receive.push_back(BytesOf(RowsOf(all, tokens_of_[static_cast<size_t>(to)])));
  }
  const absl::Status moved = step_.part.sp->AllToAll(send, receive, step_.part.deadline);
  if (!moved.ok()) return moved;
  const int64_t q = step_.layout.heads.count * shape_.head_dim;
  const int64_t kv = step_.layout.kv_heads.count * shape_.head_dim;
  query_ = ColumnsOf(all, {0, q});
  key_ = ColumnsOf(all, {q, kv});
  value_ = ColumnsOf(all, {q + kv, kv});
  return absl::OkStatus();
}

absl::StatusOr<Matrix> GroupAttention::ExchangeFromAttention(const Matrix& attention) {
  const int sp = step_.layout.mode.sp;
  if (sp == 1) return attention;
  const int64_t own = own_tokens(), row = attention.cols;
  const Matrix returned = Compact(step_.buffers.returned, own * sp, row);
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (int s = 0; s < sp; ++s) {
    send.push_back(BytesOf(RowsOf(attention, tokens_of_[static_cast<size_t>(s)])));
    receive.push_back(BytesOf(RowsOf(returned, {s * own, own})));
  }
  const absl::Status moved = step_.part.sp->AllToAll(send, receive, step_.part.deadline);
  if (!moved.ok()) return moved;
  const Matrix joined = Compact(step_.buffers.joined, own, sp * row);
  for (int s = 0; s < sp; ++s) {
    Copy(RowsOf(returned, {s * own, own}), ColumnsOf(joined, {s * row, row}));
  }
  return joined;
}

absl::Status GroupAttention::GatherResidual() {
  if (step_.layout.mode.sp == 1) return absl::OkStatus();
  const Matrix own = FirstRows(step_.state.residual, own_tokens());
  const Matrix all = FirstRows(step_.state.projected, tokens_of_.back().end());
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (const ShardRange& theirs : tokens_of_) {
    send.push_back(BytesOf(own));
    receive.push_back(BytesOf(RowsOf(all, theirs)));
  }
  const absl::Status moved = step_.part.sp->AllToAll(send, receive, step_.part.deadline);
  if (moved.ok()) Copy(all, FirstRows(step_.state.residual, all.rows));
  return moved;
}

absl::Status SummedFeedForward::Run(const LayerWeights& w, WeightSource& weights, int layer,
                                    const Batch& rows) {
  const absl::Status ran = local_.Run(w, weights, layer, rows);
  return ran.ok() ? SumProjected(step_, rows.tokens()) : ran;
}

}  // namespace skein::engine
