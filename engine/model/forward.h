// The forward pass of a ragged batch, from token ids to the residual stream, and from rows of it to
// logits. Reads like the model's definition; every FLOP is in Ops.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/checkpoint/model_config.h"
#include "engine/kv/kv_spec.h"
#include "engine/model/run_state.h"
#include "engine/model/weights.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// What a step runs: T tokens of all sequences end to end.
struct Batch {
  std::vector<int32_t> ids;             // [T]
  std::vector<int32_t> positions;       // [T]
  std::vector<SequenceSpan> sequences;  // cover the T rows in order

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
};

// A model on a device, all parts owned by the engine.
struct Model {
  const ModelConfig* config;
  const ModelWeights* weights;
  const KvSpec* kv;
  RopeTable rope;
  Ops* ops;
};

// Fills state.residual[0 … T) with the output of the last layer and writes the batch's KV; calls
// layer_done(l) as soon as layer l's KV is written. T ≤ state.residual.rows.
void RunLayers(const Model& model, const Batch& batch, const std::function<void(int)>& layer_done,
               RunState& state);

// state.logits[i, :] = logits of row rows[i] of the residual stream. rows.size() ≤
// state.logits.rows.
void ComputeLogits(const Model& model, std::span<const int32_t> rows, RunState& state);

}  // namespace skein::engine
