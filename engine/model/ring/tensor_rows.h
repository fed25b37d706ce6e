// TensorRows: how the ranks of a tensor group (RingStep::tensor) exchange rows, so that each
// multiplies all of their rows by its slice of the weights (Megatron-LM's tensor parallelism, with
// the rows scattered between its products as in its sequence parallelism: Korthikanti et al.,
// "Reducing Activation Recomputation in Large Transformer Models", section 4.2.2).
//
//   own rows --gather--> all ranks' rows, in their order --product--> partial sums
//   own rows <--------------- sum, in pairs of ranks <--scatter---------/
//
// Ranks may have different numbers of rows, or none; each knows all of them, and all make the same
// calls. Buffers hold as many rows as one rank's largest step. Where the group has more, it
// exchanges and multiplies piece by piece: 1/tp of a buffer's rows of each rank.
#pragma once

#include <cstdint>
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

// T tokens of one rank's largest step, H hidden; `act` is ModelWeights::activation. T * H * (8 +
// the bytes of act): about a tenth to a fifth of RunState. On a host they are pages that nobody has
// written until a first step has tp > 1.
struct TensorBuffers {
  Matrix gathered;  // act [T, H]  all ranks' rows
  Matrix partial;   // f32 [T, H]  their partial sums
  Matrix received;  // f32 [T, H]  other ranks' partial sums of the own rows
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

  // All outlive this. `logit_rows`: by rank of the tensor group, how many of its rows need logits.
  TensorRows(const RingStep& step, const TensorBuffers* buffers, Ops* ops,
             std::vector<int64_t> logit_rows);

  // From now on only rows that need logits count. Whether any rank of the group has one.
  bool KeepLogitRows();

  // Of the rows that count now; the same number at every rank of the group.
  const std::vector<Piece>& Pieces() const { return pieces_; }

  // The piece's rows of all ranks, given those of this one. Errors are the communicator's.
  absl::StatusOr<Matrix> Gather(const Piece& piece, const Matrix& own);
  // Where the products of the gathered rows go.
  Matrix Partial(const Piece& piece) const;
  // The rows `piece.own` of `own` = the sum of all ranks' Partial: ranks 0 and 1, 2 and 3, … first,
  // as an all-reduce adds them. Errors are the communicator's.
  absl::Status ScatterSum(const Piece& piece, const Matrix& own);

 private:
  void SetRows(const std::vector<int64_t>& rows);

  const RingStep& step_;
  const TensorBuffers& buffers_;
  Ops& ops_;
  const size_t rank_;  // of the tensor group
  const std::vector<int64_t> logit_rows_;
  std::vector<Piece> pieces_;
};

}  // namespace skein::engine
