// A model's weights in a device's memory: copies of the checkpoint's tensors, each once. For a
// device that cannot read the host's memory, and for one whose memory is a budget.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/device/device.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/load/weights.h"

namespace skein::engine {

// Bytes that are on their way to the device or there, of all that will be. Called from the loading
// thread.
using LoadProgress = std::function<void(int64_t done_bytes, int64_t total_bytes)>;

struct DeviceWeights {
  ModelWeights weights;             // as given, with views of the buffers
  std::vector<DeviceBuffer> owned;  // the device outlives them
  // Each layer's feed-forward weights, which may be let go by themselves; empty where it has none.
  std::vector<DeviceBuffer> feed_forward;
};

// What UploadWeights takes of a device's memory.
int64_t PlacedBytes(const ModelWeights& weights);

// A matrix that stands for two (the embedding as lm_head) is copied once. q, k and v are put one
// behind the other without gaps, so are gate and up, and their biases: where they are of one dtype
// their products are one on a GPU (engine/ops:products). RESOURCE_EXHAUSTED names the tensor's
// bytes and what was free.
absl::StatusOr<DeviceWeights> UploadWeights(const ModelWeights& weights, Device* device,
                                            const LoadProgress& progress);

}  // namespace skein::engine
