// Blocks between one layer of the pool and a contiguous buffer, and small values between ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// buffer = the blocks end to end, complete when it returns. buffer holds ids.size() blocks.
absl::Status PackBlocks(Device* device, const KvLayerView& layer, std::span<const int32_t> ids,
                        std::byte* buffer);
absl::Status UnpackBlocks(Device* device, const KvLayerView& layer, std::span<const int32_t> ids,
                          const std::byte* buffer);

// The ranks' `mine`s (host memory, equally many) end to end. `scratch` is memory of the device, at
// least (Size + 1) * mine.size() * 8 bytes.
absl::StatusOr<std::vector<uint64_t>> GatherValues(Communicator* comm, Device* device,
                                                   std::span<const uint64_t> mine,
                                                   std::byte* scratch, CommDeadline deadline);

}  // namespace skein::engine
