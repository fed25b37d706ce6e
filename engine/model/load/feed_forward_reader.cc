#include "engine/model/load/feed_forward_reader.h"

#include <utility>

namespace skein::engine {

CheckpointReader::CheckpointReader(std::shared_ptr<const TensorStore> tensors,
                                   std::vector<FeedForwardWeights> layers)
    : tensors_(std::move(tensors)), layers_(std::move(layers)) {
  for (const FeedForwardWeights& layer : layers_) packed_.emplace_back(layer);
}

absl::Status CheckpointReader::Read(int layer, int64_t offset, std::span<std::byte> to) {
  const auto i = static_cast<size_t>(layer);
  packed_[i].Pack(layers_[i], offset, to);
  return absl::OkStatus();
}

}  // namespace skein::engine
