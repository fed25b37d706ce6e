#include "engine/model/forward/forward.h"

#include <algorithm>
#include <limits>

#include "engine/model/forward/forward_parts.h"
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

}  // namespace

void Apply(const Model& model, const Batch& batch, const Matrix& x,
           std::span<const Projection> projections) {
  int64_t skinny_gemm = std::numeric_limits<int64_t>::max();
  for (const auto& [linear, out] : projections) {
    skinny_gemm = std::min(skinny_gemm, model.ops->SkinnyRowsMax(x.dtype, linear.weight.dtype));
  }
  for (const RowRun& run : RunsOf(batch.sequences, batch.padding, skinny_gemm)) {
    std::vector<Product> products;
    for (const auto& [linear, out] : projections) {
      products.push_back({linear.weight, linear.bias, linear.slice, RowsOf(out, run)});
    }
    model.ops->MatMuls(RowsOf(x, run), products);
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
