// The rows of a ragged batch, and what every forward pass does with them outside its layers, which
// engine/model/layers runs. Every FLOP is in Ops.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/checkpoint/model_config.h"
#include "engine/kv/kv_spec.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/load/weights.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// Neighbouring rows that go through a product in one call.
struct RowRun {
  int64_t begin = 0;
  int64_t count = 0;
};

// Cuts the rows of `sequences`, which cover them in order, so that the rest of the batch never
// decides how a row's products are summed (see Ops: batch invariance). Sequences of at most
// `skinny_gemm` rows, Ops::SkinnyRowsMax of the product, (decode, short slices) share runs of at
// most as many; a longer slice is a run of its own. `padding` rows behind the sequences fill up the
// last run, and make more.
std::vector<RowRun> RunsOf(std::span<const SequenceSpan> sequences, int64_t padding,
                           int64_t skinny_gemm);

// The rows of a step: T tokens of all sequences end to end, R of which need logits.
struct Batch {
  std::vector<int32_t> ids;             // [T]
  std::vector<int32_t> positions;       // [T]
  std::vector<SequenceSpan> sequences;  // cover the T rows in order, but for padding
  std::vector<int32_t> logit_rows;      // [R], ascending
  int64_t padding = 0;                  // of the T rows, the last: any token, of no sequence

  int64_t tokens() const { return static_cast<int64_t>(ids.size()); }
};

class WeightSource;  // engine/model/layers

// A model on a device, all parts owned by the engine.
struct Model {
  const ModelConfig* config;
  const ModelWeights* weights;
  const KvSpec* kv;
  RopeTable rope;
  Ops* ops;
  WeightSource* source = nullptr;  // of the layers' weights, where a step is not one of a group
};

// state.logits[i, :] = logits of residual row first + i, i < count ≤ state.logits.rows.
void ComputeLogits(const Model& model, int64_t first, int64_t count, RunState& state);

}  // namespace skein::engine
