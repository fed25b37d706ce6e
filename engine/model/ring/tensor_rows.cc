#include "engine/model/ring/tensor_rows.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "engine/model/forward/run_state.h"
#include "engine/model/layers/matrix_parts.h"

namespace skein::engine {

TensorRows::TensorRows(const RingStep& step, const TensorBuffers* buffers,
                       std::span<const int32_t> count, Ops* ops, std::vector<int64_t> logit_rows)
    : step_(step),
      buffers_(*buffers),
      count_(count),
      ops_(*ops),
      rank_(static_cast<size_t>(step.tensor->Rank())),
      logit_rows_(std::move(logit_rows)) {
  const auto tp = static_cast<size_t>(step.tp);
  const size_t first = static_cast<size_t>(step.comm->Rank()) / tp * tp;
  std::vector<int64_t> rows(tp, 0);
  for (size_t r = 0; r < tp; ++r) {
    for (const TokenSpan& span : step.shares[first + r].spans) rows[r] += span.count;
  }
  SetRows(rows);
}

bool TensorRows::KeepLogitRows() {
  SetRows(logit_rows_);
  return !pieces_.empty();
}

void TensorRows::SetRows(const std::vector<int64_t>& rows) {
  pieces_.clear();
  const int64_t most = *std::max_element(rows.begin(), rows.end());
  const int64_t each = buffers_.gathered.rows / step_.tp;
  for (int64_t begin = 0; begin < most; begin += each) {
    Piece piece;
    int64_t end = 0;
    for (const int64_t count : rows) {
      piece.ranks.push_back({end, std::clamp<int64_t>(count - begin, 0, each)});
      end = piece.ranks.back().end();
    }
    piece.own = {begin, piece.ranks[rank_].count};
    piece.all.sequences = {{0, end, 0, {}, KvLayout{}}};
    pieces_.push_back(std::move(piece));
  }
}

absl::StatusOr<Matrix> TensorRows::Gather(const Piece& piece, const Matrix& own) {
  const Matrix all = Compact(buffers_.gathered, piece.rows(), own.cols);
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (const ShardRange& theirs : piece.ranks) {
    send.push_back(piece.own.count == 0 ? std::span<std::byte>() : BytesOf(RowsOf(own, piece.own)));
    receive.push_back(BytesOf(RowsOf(all, theirs)));
  }
  absl::Status moved = step_.tensor->AllToAll(send, receive, step_.deadline);
  if (!moved.ok()) return moved;
  return all;
}

absl::StatusOr<Matrix> TensorRows::GatherColumns(const Piece& piece, const Matrix& own,
                                                 const std::vector<ShardRange>& columns) {
  const int64_t cols = columns[rank_].count, count = piece.own.count;
  const Matrix all = Compact(buffers_.gathered, piece.rows(), cols);
  const Matrix packed = {buffers_.received.data, own.dtype, count * step_.tp, cols, cols};
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (size_t r = 0; r < columns.size(); ++r) {
    const Matrix block = RowsOf(packed, {static_cast<int64_t>(r) * count, count});
    if (count > 0) Copy(PartOf(own, piece.own, columns[r]), block);
    send.push_back(BytesOf(block));
    receive.push_back(BytesOf(RowsOf(all, piece.ranks[r])));
  }
  absl::Status moved = step_.tensor->AllToAll(send, receive, step_.deadline);
  if (!moved.ok()) return moved;
  return all;
}

Matrix TensorRows::Partial(const Piece& piece, int64_t cols) const {
  return Compact(buffers_.partial, piece.rows(), cols);
}

absl::Status TensorRows::Exchange(const Piece& piece, const Matrix& from,
                                  const std::vector<Matrix>& parts) {
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (size_t r = 0; r < parts.size(); ++r) {
    send.push_back(BytesOf(RowsOf(from, piece.ranks[r])));
    receive.push_back(BytesOf(parts[r]));
  }
  return step_.tensor->AllToAll(send, receive, step_.deadline);
}

absl::StatusOr<std::vector<Matrix>> TensorRows::Scatter(const Piece& piece, const Matrix& partial) {
  const int64_t count = piece.own.count;
  const Matrix received = Compact(buffers_.received, count * step_.tp, partial.cols);
  std::vector<Matrix> parts;
  for (int64_t r = 0; r < step_.tp; ++r) parts.push_back(RowsOf(received, {r * count, count}));
  absl::Status moved = Exchange(piece, partial, parts);
  if (!moved.ok()) return moved;
  return parts;
}

absl::Status TensorRows::ScatterSum(const Piece& piece, const Matrix& partial, const Matrix& own) {
  const int64_t count = piece.own.count;
  const Matrix received = Compact(buffers_.received, count * (step_.tp - 1), partial.cols);
  std::vector<Matrix> parts = {count == 0 ? Matrix{} : RowsOf(own, piece.own)};
  for (int64_t r = 1; r < step_.tp; ++r)
    parts.push_back(RowsOf(received, {(r - 1) * count, count}));
  absl::Status moved = Exchange(piece, partial, parts);
  if (!moved.ok() || count == 0) return moved;
  for (size_t apart = 1; apart < parts.size(); apart *= 2) {
    for (size_t r = 0; r + apart < parts.size(); r += 2 * apart) {
      ops_.Add(parts[r], parts[r + apart]);
    }
  }
  return absl::OkStatus();
}

void TensorRows::Copy(const ConstMatrix& from, const Matrix& to) const {
  ops_.Embed(count_.first(static_cast<size_t>(to.rows)), from, to);  // gathers
}

}  // namespace skein::engine
