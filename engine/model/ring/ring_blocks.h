// Blocks between one layer of the pool and a contiguous buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// buffer = the blocks end to end, complete when it returns. buffer holds ids.size() blocks.
absl::Status PackBlocks(Device* device, const KvLayerView& layer, std::span<const int32_t> ids,
                        std::byte* buffer);
absl::Status UnpackBlocks(Device* device, const KvLayerView& layer, std::span<const int32_t> ids,
                          const std::byte* buffer);

}  // namespace skein::engine
