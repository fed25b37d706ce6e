// The forward pass of one rank of a group: Shift Parallelism's algorithm 2, in any mode (sp, tp),
// on views of the full weights. TP is (1, P), Ulysses SP is (P, 1).
//
//   own tokens (1/sp), this tp_rank's columns    all tokens, this rank's heads
//   norm, q k v, rope            -- all-to-all (SP group) -->  store KV, attention
//   o, all-reduce (TP group)     <-- all-to-all (SP group) --
//   gate up down, all-reduce (TP group)
//
// engine/parallel/shard_layout.h: which rank has which tokens, heads and weights. The residual
// stream of a token has the same bits on all ranks of its TP group. Logits: each of the P ranks
// multiplies by its own slice of the vocabulary (lm_head is the largest matrix of a small model,
// and a decode step reads it whole), and all ranks gather all slices. So all hold the same bits of
// every logit and sample the same tokens without another message.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/model/forward/forward.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/loaded_model.h"
#include "engine/parallel/shard_layout.h"

namespace skein::engine {

// How a rank takes part in a step. The ranks of `sp` and `tp` are in the order of SpGroupOf and
// TpGroupOf. `sp` is not used where sp = 1, nor `tp` where tp = 1; either may be `all`.
struct GroupPart {
  GroupMode mode;
  Communicator* all = nullptr;
  Communicator* sp = nullptr;
  Communicator* tp = nullptr;
  CommDeadline deadline;
};

// The buffers that a group step writes besides RunState. T and act as there, P ≤ ranks_max, N = T +
// ranks_max rows at most, Q and W the widest row of one rank's heads (at P = 2).
struct GroupBuffers {
  Matrix send;      // f32 [N, W]  q k v of own tokens, by receiver
  Matrix receive;   // f32 [N, W]  q k v of all tokens, this rank's heads
  Matrix returned;  // act [N, Q]  heads' outputs of own tokens, by sender
  Matrix joined;    // act [N, Q]  the same by token: [own, sp * Q]
  Matrix logits;    // f32 [R * P, ceil(V / P)]  slices, by rank

  std::vector<DeviceBuffer> owned;
};

// RESOURCE_EXHAUSTED when the device has not the memory.
absl::StatusOr<GroupBuffers> AllocateGroupBuffers(const LoadedModel& loaded, int ranks_max);

// One step. Uses loaded's RunState and `buffers`; all must outlive it.
class GroupForward {
 public:
  GroupForward(LoadedModel* loaded, GroupBuffers* buffers, const GroupPart& part,
               const ShardLayout& layout);

  // As RunLayers of forward.h, for the group: afterwards state.residual[0 … R) holds the rows of
  // logit_rows on every rank. Buffers never change places: graphs of plain steps have their
  // addresses. An error is a communicator's.
  absl::Status RunLayers(const Batch& batch, const std::function<void(int)>& layer_done);

  // Logits f32 [count, V] of residual rows first …, valid until the next call.
  absl::StatusOr<ConstMatrix> Logits(int64_t first, int64_t count);

 private:
  // q k v of the rows `own` of the layer, rotated.
  void Project(const LayerWeights& w);
  // Fills query_, key_ and value_: this rank's heads of all tokens.
  absl::Status ExchangeToAttention();
  void PackFor(int sp_rank, const Matrix& block);
  // This rank's heads of the tokens of `batch`, then all heads of the TP slice of the own ones.
  absl::StatusOr<Matrix> Attend(int layer, const Batch& batch);
  absl::StatusOr<Matrix> ExchangeFromAttention(const Matrix& attention);
  absl::Status AttentionOut(const LayerWeights& w, const Matrix& attention);
  absl::Status FeedForward(const LayerWeights& w);
  // residual += the sum over the TP group of `projected`.
  absl::Status AddSum(const Matrix& projected);
  // Leaves only the rows that need logits, in queries, residual and own tokens.
  Batch KeepLogitRows(const Batch& batch);
  absl::Status GatherResidual();

  // Tokens of the batch dealt to this rank.
  void Deal(const Batch& batch, std::vector<ShardRange> tokens_of);
  int64_t own_tokens() const { return own_.tokens(); }
  // The first rows of a buffer's memory as a matrix without gaps.
  static Matrix Compact(const Matrix& buffer, int64_t rows, int64_t cols);
  void Copy(const ConstMatrix& from, const Matrix& to);

  const Model& model_;
  RunState& state_;
  GroupBuffers& buffers_;
  GroupPart part_;
  ShardLayout layout_;
  ShardShape shape_;
  std::vector<ShardRange> tokens_of_;  // by sp_rank
  Batch own_;                          // rows of this sp_rank
  Matrix query_, key_, value_;         // f32, this rank's heads of all tokens
  std::vector<int32_t> row_ids_;       // 0, 1, 2, …
};

}  // namespace skein::engine
