#include "engine/model/layers/sliced_weights.h"

#include <cstddef>
#include <cstdint>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

const void* ElementAt(const ConstMatrix& m, int64_t element) {
  return static_cast<const std::byte*>(m.data) + element * static_cast<int64_t>(BytesOf(m.dtype));
}

// The outputs of a map: rows of [out, in], entries of the bias.
Linear SliceOutputs(const Linear& full, const ShardRange& range) {
  return {SliceRows(full.weight, range), SliceColumns(full.bias, range), full.slice};
}

// The inputs of a map; the bias whole or not at all.
Linear SliceInputs(const Linear& full, const ShardRange& range, bool bias) {
  return {SliceColumns(full.weight, range),
          bias ? full.bias : ConstVector{},
          {full.weight.cols, range.begin}};
}

ShardRange ColumnsOfHeads(const ShardRange& heads, int head_dim) {
  return {heads.begin * head_dim, heads.count * head_dim};
}

LayerWeights SliceLayer(const LayerWeights& full, const ShardLayout& layout, int head_dim) {
  if (layout.mode.tp == 1) return full;
  const ShardRange query = ColumnsOfHeads(layout.weight_heads, head_dim);
  const ShardRange key_value = ColumnsOfHeads(layout.weight_kv_heads, head_dim);
  const bool bias = layout.adds_output_bias();
  LayerWeights w = full;
  w.query = SliceOutputs(full.query, query);
  w.key = SliceOutputs(full.key, key_value);
  w.value = SliceOutputs(full.value, key_value);
  w.attention_out = SliceInputs(full.attention_out, query, bias);
  w.feed_forward.gate = SliceOutputs(full.feed_forward.gate, layout.intermediate);
  w.feed_forward.up = SliceOutputs(full.feed_forward.up, layout.intermediate);
  w.feed_forward.down = SliceInputs(full.feed_forward.down, layout.intermediate, bias);
  return w;
}

}  // namespace

ShardShape ShapeOf(const ModelConfig& config) {
  return {config.num_heads, config.num_kv_heads, config.head_dim, config.intermediate_size,
          config.vocab_size};
}

ConstMatrix SliceRows(const ConstMatrix& m, const ShardRange& range) {
  if (m.empty()) return m;
  SKEIN_CHECK(range.begin >= 0 && range.count >= 0 && range.end() <= m.rows);
  return {ElementAt(m, range.begin * m.stride), m.dtype, range.count, m.cols, m.stride};
}

ConstMatrix SliceColumns(const ConstMatrix& m, const ShardRange& range) {
  if (m.empty()) return m;
  SKEIN_CHECK(range.begin >= 0 && range.count >= 0 && range.end() <= m.cols);
  return {ElementAt(m, range.begin), m.dtype, m.rows, range.count, m.stride};
}

SlicedWeights::SlicedWeights(const ModelWeights& full, const ShardLayout& layout, int head_dim) {
  for (const LayerWeights& layer : full.layers) {
    layers_.push_back(SliceLayer(layer, layout, head_dim));
  }
}

void WeightSlices::Make(int ranks_max) {
  for (int tp = 1; tp <= ranks_max; tp *= 2) {
    for (int rank = 0; rank < tp; ++rank) {
      const absl::StatusOr<ShardLayout> layout = MakeShardLayout(ShapeOf(config_), {1, tp}, rank);
      if (!layout.ok()) return;
      Of(*layout);
    }
  }
}

void WeightSlices::MakeAgain() {
  for (auto& [place, slices] : slices_) {
    const auto layout = MakeShardLayout(ShapeOf(config_), {1, place.first}, place.second);
    SKEIN_CHECK(layout.ok());  // it was made before
    slices = SlicedWeights(full_, *layout, config_.head_dim);
  }
}

WeightSource& WeightSlices::Of(const ShardLayout& layout) {
  const std::pair place(layout.mode.tp, layout.tp_rank);
  return slices_.try_emplace(place, full_, layout, config_.head_dim).first->second;
}

}  // namespace skein::engine
