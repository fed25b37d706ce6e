// How many blocks the KV pool of a model has. Internal to engine/model.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/checkpoint/model_config.h"
#include "engine/device/device.h"
#include "engine/kv/kv_spec.h"
#include "engine/model/model_engine.h"

namespace skein::engine {

// The shape of a block; num_blocks is 0. `weights`: the dtype for KV if the options name none.
KvSpec KvShapeOf(const ModelConfig& config, DType weights, const ModelEngineOptions& options);

// The blocks that num_blocks or kv_bytes ask for. INVALID_ARGUMENT when kv_bytes holds no block, or
// there would be too many.
absl::StatusOr<int64_t> BlocksAskedFor(const KvSpec& kv, const ModelEngineOptions& options);

// For ModelEngineOptions::kv_fills_device: the pool gets what the model's weights and the buffers
// of steps leave of the device's memory.
class KvRest {
 public:
  // `placed_bytes` of weights will be allocated on `device`, or on one that shares its memory.
  // REQUIRES: nothing was allocated for the model.
  static absl::StatusOr<KvRest> Make(const KvSpec& kv, int64_t placed_bytes, Device* device);

  // No pool has more, since the buffers of steps take their part, too. RESOURCE_EXHAUSTED when the
  // weights alone are more than there is; names both numbers.
  absl::StatusOr<int64_t> BlocksMax() const;

  // When all but the weights, `more_bytes` and the pool is allocated. RESOURCE_EXHAUSTED when there
  // is no room for a block; says what takes the room.
  absl::StatusOr<int64_t> Blocks(int64_t more_bytes) const;

  // An error of an allocation beside the weights, with what they take.
  absl::Status About(const absl::Status& status) const;

 private:
  KvRest(const KvSpec& kv, int64_t placed_bytes, int64_t free_bytes, Device* device)
      : kv_(kv), placed_bytes_(placed_bytes), free_bytes_(free_bytes), device_(device) {}

  KvSpec kv_;
  int64_t placed_bytes_;
  int64_t free_bytes_;  // at the start
  Device* device_;
};

}  // namespace skein::engine
