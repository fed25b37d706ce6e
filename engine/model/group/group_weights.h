// A rank's share of a model's weights: views of the full matrices, so that changing how a group
// runs moves no bytes.
#pragma once

#include "engine/base/tensor.h"
#include "engine/checkpoint/model_config.h"
#include "engine/model/load/weights.h"
#include "engine/parallel/shard_layout.h"

namespace skein::engine {

ShardShape ShapeOf(const ModelConfig& config);

// q, k, v, gate and up: the rows of this tp_rank's heads and intermediate columns, with their
// biases; o and down: the matching columns (a stride), with their biases at tp_rank 0 only, since
// ranks' sums are added. Norms are whole. gate_up stays fused where tp = 1; else its halves are not
// neighbours.
LayerWeights SliceLayer(const LayerWeights& full, const ShardLayout& layout, int head_dim);

// Rows, or columns, of `m`; empty stays empty.
ConstMatrix SliceRows(const ConstMatrix& m, const ShardRange& range);
ConstMatrix SliceColumns(const ConstMatrix& m, const ShardRange& range);

}  // namespace skein::engine
