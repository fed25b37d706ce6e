#include "engine/model/group/group_forward.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "engine/model/layers/matrix_parts.h"
#include "engine/model/layers/sliced_weights.h"

namespace skein::engine {

absl::Status GroupForward::RunLayers(const Batch& batch,
                                     const std::function<void(int)>& layer_queued) {
  const GroupStep step{model_, state_, buffers_, part_, layout_};
  GroupAttention attention(step, &batch);
  SummedFeedForward feed_forward(step);
  return engine::RunLayers({attention, feed_forward, weights_}, model_.config->num_layers,
                           layer_queued);
}

absl::StatusOr<ConstMatrix> GroupForward::Logits(int64_t first, int64_t count) {
  const int ranks = layout_.mode.ranks();
  const int64_t vocab = model_.config->vocab_size;
  const int64_t width = (vocab + ranks - 1) / ranks;
  const Matrix normed = FirstRows(state_.last_normed, count);
  const Matrix slices = Compact(buffers_.logits, ranks * count, width);
  const Matrix slice = RowsOf(slices, {layout_.rank * count, count});
  model_.ops->RmsNorm(RowsOf(state_.residual, {first, count}), model_.weights->final_norm,
                      model_.config->rms_norm_eps, normed);
  model_.ops->MatMul(normed, SliceRows(model_.weights->lm_head, layout_.vocabulary), {},
                     ColumnsOf(slice, {0, layout_.vocabulary.count}));
  const absl::Status gathered =
      part_.all->AllGather(BytesOf(slice), BytesOf(slices), part_.deadline);
  if (!gathered.ok()) return gathered;
  const Matrix logits = FirstRows(state_.logits, count);
  std::vector<int32_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const int64_t begin = std::min<int64_t>(vocab, rank * width);
    const int64_t cols = std::min<int64_t>(width, vocab - begin);
    model_.ops->Embed(rows, PartOf(slices, {rank * count, count}, {0, cols}),
                      ColumnsOf(logits, {begin, cols}));  // copies
  }
  return logits;
}

}  // namespace skein::engine
