// GroupAttention: the attention of one rank of a group, in any mode (sp, tp), on views of the full
// weights; and SummedFeedForward, the feed-forward part beside it.
//
//   own tokens (1/sp), this tp_rank's columns    all tokens, this rank's heads
//   norm, q k v, rope            -- all-to-all (SP group) -->  store KV, attention
//   o, all-reduce (TP group)     <-- all-to-all (SP group) --
//   gate up down, all-reduce (TP group)
//
// engine/parallel/shard_layout.h: which rank has which tokens, heads and weights. The residual
// stream of a token has the same bits on all ranks of its TP group.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/group/group_buffers.h"
#include "engine/model/layers/layer_loop.h"
#include "engine/model/layers/local_feed_forward.h"
#include "engine/parallel/group_part.h"
#include "engine/parallel/shard_layout.h"

namespace skein::engine {

// This rank's inputs of a group step, all of which outlive it.
struct GroupStep {
  const Model& model;
  RunState& state;
  GroupBuffers& buffers;
  const GroupPart& part;
  const ShardLayout& layout;
};

// state.projected = its sum over the TP group, of the first `rows` rows, which are as many at all
// ranks of that group.
absl::Status SumProjected(const GroupStep& step, int64_t rows);

// Afterwards state.residual holds the rows of logit_rows on every rank. Buffers never change
// places: graphs of plain steps have their addresses.
class GroupAttention final : public AttentionPhase {
 public:
  GroupAttention(const GroupStep& step, const Batch* batch);  // `batch` outlives this

  void Begin() override;
  absl::Status WriteKv(const LayerWeights& w, int layer) override;
  bool KeepLogitRows(const LayerWeights& w, int layer) override;
  absl::Status Attend(const LayerWeights& w, int layer) override;
  const Batch& Rows() const override { return own_; }
  absl::Status End() override;

 private:
  // q k v of the own rows, rotated.
  void Project(const LayerWeights& w);
  // Fills query_, key_ and value_: this rank's heads of all tokens.
  absl::Status ExchangeToAttention();
  void PackFor(int sp_rank, const Matrix& block);
  // All heads of the TP slice of the own tokens.
  absl::StatusOr<Matrix> ExchangeFromAttention(const Matrix& attention);
  absl::Status GatherResidual();
  // Tokens of the batch dealt to this rank.
  void Deal(const Batch& batch, std::vector<ShardRange> tokens_of);
  int64_t own_tokens() const { return own_.tokens(); }
  void Copy(const ConstMatrix& from, const Matrix& to);

  const GroupStep step_;
  const ShardShape shape_;
  const Batch* attending_;             // all ranks' rows
  Batch selected_;                     // of the last layer
  std::vector<ShardRange> tokens_of_;  // by sp_rank
  Batch own_;                          // rows of this sp_rank
  Matrix query_, key_, value_;         // f32, this rank's heads of all tokens
  std::vector<int32_t> row_ids_;       // 0, 1, 2, …
};

// The slices' feed-forward part, summed over the TP group.
class SummedFeedForward final : public FeedForwardPhase {
 public:
  explicit SummedFeedForward(const GroupStep& step)
      : step_(step), local_(&step.model, &step.state) {}

  absl::Status Run(const LayerWeights& w, WeightSource& weights, int layer,
                   const Batch& rows) override;

 private:
  const GroupStep step_;
  LocalFeedForward local_;
};

}  // namespace skein::engine
