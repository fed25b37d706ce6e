// TensorRows: how the ranks of a tensor group (RingStep::tensor) exchange rows, so that each
// multiplies all of their rows by its slice of the weights (Megatron-LM's tensor parallelism, with
// the rows scattered between its products as in its sequence parallelism: Korthikanti et al.,
// "Reducing Activation Recomputation in Large Transformer Models", section 4.2.2).
//
//   gate up, q k v:   own rows --gather--> all rows, whole   --product--> this rank's columns
//   down, o:        all rows, this rank's columns --product--> partial sums --scatter, sum--> own
//
// The columns of q, k and v return to the rows' owners, who attend with all heads; those of the
// attention's output leave them again.
//
// Ranks may have different numbers of rows, or none; each knows all of them, and all make the same
// calls. Buffers hold as many rows as one rank's largest step. Where the group has more, it
// exchanges and multiplies piece by piece: 1/tp of a buffer's rows of each rank.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/tensor.h"
#include "engine/comm/communicator.h"
#include "engine/model/forward/forward.h"
#include "engine/ops/ops.h"
#include "engine/parallel/shard_layout.h"
#include "engine/step.h"

namespace skein::engine {

// T tokens of one rank's largest step, H hidden, Q and W one rank's widest columns of q and of q, k
// and v together (at tp = 2); `act` is ModelWeights::activation. About a tenth to a fifth of
// RunState: T * H * (8 + the bytes of act) where H is the widest. On a host they are pages that
// nobody has written until a first step has tp > 1.
struct TensorBuffers {
  Matrix gathered;  // act [T, max(H, Q)]  all ranks' rows
  Matrix partial;   // f32 [T, max(H, W)]  their products
  Matrix received;  // f32 [T, max(H, W)]  what the ranks computed of the own rows
};

class TensorRows {
 public:
  // What is exchanged at once.
  struct Piece {
    Batch all;                      // the gathered rows, as one run
    std::vector<ShardRange> ranks;  // among them, by rank
    ShardRange own;                 // among this rank's rows

    int64_t rows() const { return ranks.back().end(); }
  };

  // All outlive this. `count`: 0, 1, 2 …, as many as the buffers have rows. `logit_rows`: by rank
  // of the tensor group, how many of its rows need logits.
  TensorRows(const RingStep& step, const TensorBuffers* buffers, std::span<const int32_t> count,
             Ops* ops, std::vector<int64_t> logit_rows);

  int ranks() const { return step_.tp; }

  // From now on only rows that need logits count. Whether any rank of the group has one.
  bool KeepLogitRows();

  // Of the rows that count now; the same number at every rank of the group.
  const std::vector<Piece>& Pieces() const { return pieces_; }

  // Errors of what follows are the communicator's. `own`: all rows of this rank that count.

  // The piece's rows of all ranks.
  absl::StatusOr<Matrix> Gather(const Piece& piece, const Matrix& own);
  // The same of columns: this rank gets all rows' `columns` of its own number, and gives the others
  // theirs. All are as wide.
  absl::StatusOr<Matrix> GatherColumns(const Piece& piece, const Matrix& own,
                                       const std::vector<ShardRange>& columns);
  // Where the products of the gathered rows go.
  Matrix Partial(const Piece& piece, int64_t cols) const;
  // What each rank has in `partial` of this rank's rows of the piece.
  absl::StatusOr<std::vector<Matrix>> Scatter(const Piece& piece, const Matrix& partial);
  // The rows `piece.own` of `own` = the sum of all ranks' `partial`: ranks 0 and 1, 2 and 3, …
  // first, as an all-reduce adds them.
  absl::Status ScatterSum(const Piece& piece, const Matrix& partial, const Matrix& own);
  void Copy(const ConstMatrix& from, const Matrix& to) const;

 private:
  void SetRows(const std::vector<int64_t>& rows);
  // Each rank gets its rows of `from`; what rank r has of the own ones comes to parts[r].
  absl::Status Exchange(const Piece& piece, const Matrix& from, const std::vector<Matrix>& parts);

  const RingStep& step_;
  const TensorBuffers& buffers_;
  const std::span<const int32_t> count_;
  Ops& ops_;
  const size_t rank_;  // of the tensor group
  const std::vector<int64_t> logit_rows_;
  std::vector<Piece> pieces_;
};

}  // namespace skein::engine
