// A rank's share of a model's weights: views of the full matrices, so that changing how a group
// runs moves no bytes.
#pragma once

#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "engine/base/tensor.h"
#include "engine/checkpoint/model_config.h"
#include "engine/model/layers/weight_source.h"
#include "engine/model/load/weights.h"
#include "engine/parallel/shard_layout.h"

namespace skein::engine {

ShardShape ShapeOf(const ModelConfig& config);

// One rank's slices of all layers in one mode, which are those of its tp_rank. q, k, v, gate and
// up: the rows of this tp_rank's heads and intermediate columns, with their biases; o and down: the
// matching columns (a stride), with their biases at tp_rank 0 only, since ranks' sums are added.
// Norms are whole.
class SlicedWeights final : public WeightSource {
 public:
  SlicedWeights(const ModelWeights& full, const ShardLayout& layout, int head_dim);

  const LayerWeights& Layer(int layer) override { return layers_[static_cast<size_t>(layer)]; }
  absl::StatusOr<const FeedForwardWeights*> FeedForward(int layer, int /*tile*/) override {
    return &Layer(layer).feed_forward;
  }
  void Used(int /*layer*/, int /*tile*/) override {}

 private:
  std::vector<LayerWeights> layers_;
};

// The slices of every place in a TP group that was asked for, some hundred bytes a layer each. Made
// before the first step that needs them. Used by one thread at a time.
class WeightSlices {
 public:
  // Both outlive this, and stay as they are from the first call on, or MakeAgain is called.
  WeightSlices(const ModelWeights* full, const ModelConfig* config)
      : full_(*full), config_(*config) {}

  // Makes those of all ranks of TP groups of 1, 2, 4 … ranks, up to `ranks_max` and as far as the
  // model can be dealt.
  void Make(int ranks_max);

  // Of the layout's tp_rank, made now if they are not there. Stays where it is.
  WeightSource& Of(const ShardLayout& layout);

  // All that were made, where they are, of weights that lie elsewhere now.
  void MakeAgain();

  size_t made() const { return slices_.size(); }

 private:
  const ModelWeights& full_;
  const ModelConfig& config_;
  std::map<std::pair<int, int>, SlicedWeights> slices_;  // by (tp, tp_rank)
};

// Rows, or columns, of `m`; empty stays empty.
ConstMatrix SliceRows(const ConstMatrix& m, const ShardRange& range);
ConstMatrix SliceColumns(const ConstMatrix& m, const ShardRange& range);

}  // namespace skein::engine
