#include "engine/model/layers/layer_loop.h"

namespace skein::engine {

absl::Status RunLayers(const LayerParts& parts, int layers,
                       const std::function<void(int layer)>& layer_queued) {
  AttentionPhase& attention = parts.attention;
  attention.Begin();
  for (int layer = 0; layer < layers; ++layer) {
    const LayerWeights& w = parts.weights.Layer(layer);
    absl::Status status = attention.WriteKv(w, layer);
    if (!status.ok()) return status;
    if (layer_queued) layer_queued(layer);
    if (layer + 1 == layers && !attention.KeepLogitRows(w, layer)) break;
    status = attention.Attend(w, layer);
    if (status.ok()) {
      status = parts.feed_forward.Run(w, parts.weights, layer, attention.Rows());
    }
    if (!status.ok()) return status;
  }
  return attention.End();
}

}  // namespace skein::engine
