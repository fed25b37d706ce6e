// The forward pass of one rank of a group: Shift Parallelism's algorithm 2, in any mode (sp, tp),
// on views of the full weights. TP is (1, P), Ulysses SP is (P, 1). group_attention.h has the
// layer.
//
// Logits: each of the P ranks multiplies by its own slice of the vocabulary (lm_head is the largest
// matrix of a small model, and a decode step reads it whole), and all ranks gather all slices. So
// all hold the same bits of every logit and sample the same tokens without another message.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/forward/forward.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/group/group_attention.h"
#include "engine/model/layers/weight_source.h"
#include "engine/model/loaded_model.h"
#include "engine/parallel/group_part.h"
#include "engine/parallel/shard_layout.h"

namespace skein::engine {

// One step. Uses loaded's RunState and GroupBuffers, and must not outlive it.
class GroupForward {
 public:
  // `weights`: this rank's slices in the layout. REQUIRES: `loaded` has GroupBuffers of at least
  // the layout's ranks.
  GroupForward(LoadedModel* loaded, WeightSource* weights, const GroupPart& part,
               const ShardLayout& layout)
      : model_(loaded->model),
        state_(loaded->state),
        buffers_(*loaded->group_buffers),
        weights_(*weights),
        part_(part),
        layout_(layout) {}

  // Runs all layers; afterwards state.residual[0 … R) holds the rows of logit_rows on every rank.
  // An error is a communicator's.
  absl::Status RunLayers(const Batch& batch, const std::function<void(int)>& layer_queued);

  // Logits f32 [count, V] of residual rows first …, valid until the next call.
  absl::StatusOr<ConstMatrix> Logits(int64_t first, int64_t count);

 private:
  const Model& model_;
  RunState& state_;
  GroupBuffers& buffers_;
  WeightSource& weights_;
  const GroupPart part_;
  const ShardLayout layout_;
};

}  // namespace skein::engine
