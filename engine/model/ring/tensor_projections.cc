#include "engine/model/ring/tensor_projections.h"

#include <cstddef>

#include "engine/model/forward/forward_parts.h"
#include "engine/model/layers/matrix_parts.h"
#include "engine/model/layers/sliced_weights.h"

namespace skein::engine {
namespace {

ShardRange TimesHeadDim(const ShardRange& heads, int head_dim) {
  return {heads.begin * head_dim, heads.count * head_dim};
}

}  // namespace

TensorProjections::TensorProjections(const Model* model, TensorRows* tensor, RunState* state)
    : model_(*model), tensor_(*tensor), state_(*state) {
  const ShardShape shape = ShapeOf(*model->config);
  for (int rank = 0; rank < tensor->ranks(); ++rank) {
    query_columns_.push_back(TimesHeadDim(HeadsOf(shape, tensor->ranks(), rank), shape.head_dim));
    key_columns_.push_back(TimesHeadDim(KvHeadsOf(shape, tensor->ranks(), rank), shape.head_dim));
  }
}

absl::Status TensorProjections::MakeAll(const LayerWeights& w, int64_t rows) {
  return Multiply({{w.query, FirstRows(state_.query, rows), query_columns_},
                   {w.key, FirstRows(state_.key, rows), key_columns_},
                   {w.value, FirstRows(state_.value, rows), key_columns_}},
                  rows);
}

absl::Status TensorProjections::MakeKeys(const LayerWeights& w, int64_t rows) {
  return Multiply({{w.key, FirstRows(state_.key, rows), key_columns_},
                   {w.value, FirstRows(state_.value, rows), key_columns_}},
                  rows);
}

absl::Status TensorProjections::MakeQueries(const LayerWeights& w, int64_t rows) {
  return Multiply({{w.query, FirstRows(state_.query, rows), query_columns_}}, rows);
}

absl::Status TensorProjections::Multiply(const std::vector<Part>& parts, int64_t rows) {
  int64_t cols = 0;
  for (const Part& part : parts) cols += part.linear.weight.rows;
  for (const TensorRows::Piece& piece : tensor_.Pieces()) {
    const absl::StatusOr<Matrix> all = tensor_.Gather(piece, FirstRows(state_.normed, rows));
    if (!all.ok()) return all.status();
    const Matrix partial = tensor_.Partial(piece, cols);
    std::vector<Projection> projections;
    int64_t begin = 0;
    for (const Part& part : parts) {
      const int64_t count = part.linear.weight.rows;
      projections.push_back({part.linear, ColumnsOf(partial, {begin, count})});
      begin += count;
    }
    Apply(model_, piece.all, *all, projections);
    const absl::StatusOr<std::vector<Matrix>> computed = tensor_.Scatter(piece, partial);
    if (!computed.ok()) return computed.status();
    if (piece.own.count == 0) continue;
    // Where ranks have the same keys and values each is copied: they are the same bits.
    for (size_t rank = 0; rank < computed->size(); ++rank) {
      begin = 0;
      for (const Part& part : parts) {
        const int64_t count = part.linear.weight.rows;
        tensor_.Copy(ColumnsOf((*computed)[rank], {begin, count}),
                     PartOf(part.own, piece.own, part.columns[rank]));
        begin += count;
      }
    }
  }
  return absl::OkStatus();
}

absl::Status TensorProjections::Project(const LayerWeights& w, int64_t rows) {
  const Matrix projected = FirstRows(state_.projected, rows);
  for (const TensorRows::Piece& piece : tensor_.Pieces()) {
    const absl::StatusOr<Matrix> all =
        tensor_.GatherColumns(piece, FirstRows(state_.attention, rows), query_columns_);
    if (!all.ok()) return all.status();
    const Matrix partial = tensor_.Partial(piece, projected.cols);
    Apply(model_, piece.all, *all, {{w.attention_out, partial}});
    absl::Status summed = tensor_.ScatterSum(piece, partial, projected);
    if (!summed.ok()) return summed;
  }
  return absl::OkStatus();
}

}  // namespace skein::engine
