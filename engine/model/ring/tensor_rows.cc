#include "engine/model/ring/tensor_rows.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "engine/model/forward/run_state.h"
#include "engine/model/layers/matrix_parts.h"

namespace skein::engine {

TensorRows::TensorRows(const RingStep& step, const TensorBuffers* buffers, Ops* ops,
                       std::vector<int64_t> logit_rows)
    : step_(step),
      buffers_(*buffers),
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
  const Matrix all = Compact(buffers_.gathered, piece.rows(), buffers_.gathered.cols);
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (const ShardRange& theirs : piece.ranks) {
    send.push_back(piece.own.count == 0 ? std::span<std::byte>() : BytesOf(RowsOf(own, piece.own)));
    receive.push_back(BytesOf(RowsOf(all, theirs)));
  }
  const absl::Status moved = step_.tensor->AllToAll(send, receive, step_.deadline);
  if (!moved.ok()) return moved;
  return all;
}

Matrix TensorRows::Partial(const Piece& piece) const {
  return Compact(buffers_.partial, piece.rows(), buffers_.partial.cols);
}

absl::Status TensorRows::ScatterSum(const Piece& piece, const Matrix& own) {
  const Matrix partial = Partial(piece);
  const int64_t count = piece.own.count;
  std::vector<Matrix> parts;  // of the own rows, by the rank that computed them
  std::vector<std::span<const std::byte>> send;
  std::vector<std::span<std::byte>> receive;
  for (const ShardRange& theirs : piece.ranks) {
    const auto others = static_cast<int64_t>(parts.size()) - 1;
    parts.push_back(count == 0   ? Matrix{}
                    : others < 0 ? RowsOf(own, piece.own)
                                 : RowsOf(buffers_.received, {others * count, count}));
    send.push_back(BytesOf(RowsOf(partial, theirs)));
    receive.push_back(BytesOf(parts.back()));
  }
  const absl::Status moved = step_.tensor->AllToAll(send, receive, step_.deadline);
  if (!moved.ok() || count == 0) return moved;
  for (size_t apart = 1; apart < parts.size(); apart *= 2) {
    for (size_t r = 0; r + apart < parts.size(); r += 2 * apart) {
      ops_.Add(parts[r], parts[r + apart]);
    }
  }
  return absl::OkStatus();
}

}  // namespace skein::engine
