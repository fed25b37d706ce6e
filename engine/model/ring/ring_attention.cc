#include "engine/model/ring/ring_attention.h"

#include <algorithm>
#include <span>

#include "engine/model/layers/layer_parts.h"
#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

Matrix RowsFrom(const Matrix& m, int64_t begin, int64_t rows) {
  SKEIN_CHECK(m.dtype == DType::kF32 && begin + rows <= m.rows);
  return {static_cast<float*>(m.data) + begin * m.stride, m.dtype, rows, m.cols, m.stride};
}

}  // namespace

void RingAttention::Begin() {
  if (rows_->tokens() == 0) return;
  step_.model.ops->Embed(rows_->ids, step_.model.weights->embedding,
                         FirstRows(step_.state.residual, rows_->tokens()));
}

absl::Status RingAttention::WriteKv(const LayerWeights& w, int layer) {
  if (step_.shared != nullptr) {
    absl::Status written = WriteShared(w, layer);
    if (!written.ok()) return written;
  } else if (rows_->tokens() > 0) {
    engine::WriteKv(step_.model, w, *rows_, layer, step_.state);
  }
  step_.progress.Reach(Milestone::kWritten, layer + 1);
  return absl::OkStatus();
}

absl::Status RingAttention::WriteShared(const LayerWeights& w, int layer) {
  const int64_t rows = rows_->tokens();
  const bool last = layer + 1 == step_.model.config->num_layers;
  if (rows > 0) NormLayer(step_.model, w, rows, layer, step_.state);
  absl::Status made = last ? step_.shared->MakeKeys(w, rows) : step_.shared->MakeAll(w, rows);
  if (made.ok() && rows > 0) StoreKeys(step_.model, w, *rows_, layer, step_.state);
  return made;
}

bool RingAttention::KeepLogitRows(const LayerWeights& w, int /*layer*/) {
  if (rows_->tokens() > 0) {
    selected_ = step_.shared != nullptr
                    ? SelectLogitRows(step_.model, w, *rows_, step_.state)
                    : engine::KeepLogitRows(step_.model, w, *rows_, step_.state);
    rows_ = &selected_;
  }
  if (step_.shared == nullptr) return rows_->tokens() > 0;
  queries_due_ = true;
  return step_.shared->KeepLogitRows();
}

absl::Status RingAttention::Attend(const LayerWeights& w, int layer) {
  const int64_t rows = rows_->tokens();
  if (queries_due_) {
    absl::Status made = step_.shared->MakeQueries(w, rows);
    if (!made.ok()) return made;
  }
  if (rows == 0) {  // nor will a later layer have any
    ConsumeAll();
  } else {
    MakeQueries(step_.model, w, *rows_, step_.state);
    absl::Status attended = AttendAll(layer);
    if (!attended.ok()) return attended;
  }
  if (step_.shared != nullptr) return step_.shared->Project(w, rows);
  if (rows > 0) {
    ProjectAttention(step_.model, w, *rows_, FirstRows(step_.state.attention, rows), step_.state);
  }
  return absl::OkStatus();
}

absl::Status RingAttention::End() {
  if (rows_->tokens() > 0) EndLayers(step_.model, *rows_, step_.state);
  ConsumeAll();
  // Other ranks may still need blocks of this rank when its own attention has ended.
  const int layers = step_.model.config->num_layers;
  step_.progress.Await(Milestone::kPassed, layers);
  step_.progress.Await(Milestone::kMoved, layers);
  return step_.progress.status();
}

void RingAttention::ConsumeAll() {
  if (step_.ring != nullptr) step_.progress.Reach(Milestone::kConsumed, step_.ring->fills());
}

Matrix RingAttention::Merged() const {
  return step_.buffers.merged.empty() ? step_.state.attention : step_.buffers.merged;
}

absl::Status RingAttention::AttendAll(int layer) {
  if (!step_.progress.Await(Milestone::kMoved, layer + 1)) return step_.progress.status();
  if (step_.ring != nullptr && step_.buffers.window.num_blocks > 0) return AttendWindows(layer);
  AttendOwn(layer);
  if (step_.ring == nullptr) return absl::OkStatus();
  for (int64_t segment = 0; segment < step_.layout.segments(); ++segment) {
    for (int hop = 1; hop < step_.layout.ranks(); ++hop) {
      const int64_t fill = step_.ring->FillOf(layer, segment, hop);
      if (!step_.progress.Await(Milestone::kFilled, fill + 1)) return step_.progress.status();
      AttendArrived(step_.ring->RankBefore(hop), segment, step_.ring->BufferOf(fill));
      step_.progress.Reach(Milestone::kConsumed, fill + 1);
    }
  }
  Convert();
  return absl::OkStatus();
}

absl::Status RingAttention::AttendWindows(int layer) {
  for (int64_t window = 0; window < step_.layout.segments(); ++window) {
    const int64_t first = step_.ring->FillOf(layer, window, 0);
    const int64_t end = first + step_.layout.ranks();
    if (!step_.progress.Await(Milestone::kFilled, end)) return step_.progress.status();
    AttendWindow(window, step_.ring->BufferOf(first));
    step_.progress.Reach(Milestone::kConsumed, end);
  }
  Convert();
  return absl::OkStatus();
}

void RingAttention::Convert() {
  if (step_.buffers.merged.empty()) return;
  const int64_t tokens = rows_->tokens();
  step_.model.ops->Embed(std::span(step_.buffers.count).first(static_cast<size_t>(tokens)),
                         FirstRows(step_.buffers.merged, tokens),
                         FirstRows(step_.state.attention, tokens));
}

// Rows behind the window see all of it; rows within it, runs of neighbours, what is before them.
void RingAttention::AttendWindow(int64_t window, std::byte* buffer) {
  const std::vector<int32_t> table = step_.layout.WindowTable(step_.ring->RankBefore(0), window);
  const KvSpec& spec = step_.buffers.window;
  const int64_t window_tokens = spec.num_blocks * spec.block_tokens;
  const int64_t begin = window * window_tokens, end = begin + window_tokens;
  const std::vector<int32_t>& positions = rows_->positions;
  const auto place = [&](int64_t position) {
    return std::lower_bound(positions.begin(), positions.end(), position) - positions.begin();
  };
  const int64_t first = place(begin), behind = place(end), tokens = rows_->tokens();
  if (first == tokens) return;
  std::vector<SequenceSpan> spans;
  for (int64_t row = first; row < behind; ++row) {
    const int64_t position = positions[static_cast<size_t>(row)] - begin;
    const bool follows =
        !spans.empty() && spans.back().position + spans.back().token_count == position;
    if (follows) {
      ++spans.back().token_count;
    } else {
      spans.push_back({row, 1, position, table, KvLayout{}});
    }
  }
  if (behind < tokens) {
    spans.push_back({behind, tokens - behind, 0, table, KvLayout{}, window_tokens});
  }
  const bool is_first = window == 0;
  step_.model.ops->PagedAttention(
      FirstRows(step_.state.query, tokens), spans, {buffer, &spec}, AttentionScale(step_.model),
      FirstRows(is_first ? Merged() : step_.buffers.partial, tokens),
      FirstRows(is_first ? step_.buffers.merged_lse : step_.buffers.partial_lse, tokens));
  if (!is_first) MergePartial(first);
}

void RingAttention::AttendOwn(int layer) {
  const int64_t tokens = rows_->tokens();
  const bool alone = step_.ring == nullptr;
  step_.model.ops->PagedAttention(FirstRows(step_.state.query, tokens), rows_->sequences,
                                  {step_.state.kv[layer], step_.model.kv},
                                  AttentionScale(step_.model),
                                  FirstRows(alone ? step_.state.attention : Merged(), tokens),
                                  alone ? Matrix{} : FirstRows(step_.buffers.merged_lse, tokens));
}

void RingAttention::AttendArrived(int rank, int64_t segment, std::byte* buffer) {
  const std::vector<VisibleRows> visible =
      step_.layout.RowsThatSee(rank, segment, rows_->positions);
  if (visible.empty()) return;
  std::vector<SequenceSpan> spans;
  for (const VisibleRows& v : visible) {
    spans.push_back({v.begin, v.count, 0,
                     std::span(step_.buffers.count).first(step_.buffers.segment.num_blocks),
                     KvLayout{}, v.keys});
  }
  const int64_t tokens = rows_->tokens();
  Ops& ops = *step_.model.ops;
  ops.PagedAttention(FirstRows(step_.state.query, tokens), spans, {buffer, &step_.buffers.segment},
                     AttentionScale(step_.model), FirstRows(step_.buffers.partial, tokens),
                     FirstRows(step_.buffers.partial_lse, tokens));
  MergePartial(visible.front().begin);
}

void RingAttention::MergePartial(int64_t first) {
  const int64_t count = rows_->tokens() - first;
  step_.model.ops->MergeAttention(RowsFrom(Merged(), first, count),
                                  RowsFrom(step_.buffers.merged_lse, first, count),
                                  RowsFrom(step_.buffers.partial, first, count),
                                  RowsFrom(step_.buffers.partial_lse, first, count));
}

}  // namespace skein::engine
