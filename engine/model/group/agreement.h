// How ranks find out, before they run a step together, whether they were given the same one: each
// makes a digest of what must be equal, and all compare them. Internal to engine/model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/comm/communicator.h"
#include "engine/device/device.h"

namespace skein::engine {

// 64 bits over values in their order, the same in every process. Tells mistakes apart, not attacks.
class Digest {
 public:
  explicit Digest(std::string_view model_hash);

  void Add(uint64_t value);
  void AddIds(std::span<const int32_t> ids);
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0;
};

// The ranks' `mine`s (host memory, equally many) end to end. `scratch` is memory of the device, at
// least (Size + 1) * mine.size() * 8 bytes. Errors are the communicator's and the device's.
absl::StatusOr<std::vector<uint64_t>> GatherValues(Communicator* comm, Device* device,
                                                   std::span<const uint64_t> mine,
                                                   std::byte* scratch, CommDeadline deadline);

}  // namespace skein::engine
