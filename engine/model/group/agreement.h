// How ranks of a ring step find out, before they run it, whether they were given the same one: each
// makes a digest of what must be equal, and all compare them. Internal to engine/model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/device/device.h"
#include "engine/parallel/step_digest.h"

namespace skein::engine {

// The ranks' `mine`s (host memory, equally many) end to end. `scratch` is memory of the device, at
// least (Size + 1) * mine.size() * 8 bytes. Errors are the communicator's and the device's.
absl::StatusOr<std::vector<uint64_t>> GatherValues(Communicator* comm, Device* device,
                                                   std::span<const uint64_t> mine,
                                                   std::byte* scratch, CommDeadline deadline);

}  // namespace skein::engine
