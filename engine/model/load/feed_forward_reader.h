// FeedForwardReader: where the bytes of feed-forward weights that are not on an instance come from.
// Implementations: CheckpointReader (the mapped file), OwnersReader (other ranks' memory) and
// CheckpointFile (the file, when it is first needed) in model/sharing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/checkpoint/tensor_store.h"
#include "engine/model/load/packed_feed_forward.h"
#include "engine/model/load/weights.h"

namespace skein::engine {

// Used by one thread at a time, which is not the engine's.
class FeedForwardReader {
 public:
  virtual ~FeedForwardReader() = default;

  // Fills `to` with the bytes from `offset` on of the layer's weights, packed as PackedFeedForward
  // says. May wait for the bytes, but not without a bound. An error ends the step that needs them;
  // a later one may ask again.
  virtual absl::Status Read(int layer, int64_t offset, std::span<std::byte> to) = 0;
};

// Reads the checkpoint's mapped file.
class CheckpointReader final : public FeedForwardReader {
 public:
  // `layers`: views of `tensors`.
  CheckpointReader(std::shared_ptr<const TensorStore> tensors,
                   std::vector<FeedForwardWeights> layers);

  absl::Status Read(int layer, int64_t offset, std::span<std::byte> to) override;

 private:
  const std::shared_ptr<const TensorStore> tensors_;
  const std::vector<FeedForwardWeights> layers_;
  std::vector<PackedFeedForward> packed_;
};

}  // namespace skein::engine
