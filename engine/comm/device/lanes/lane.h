// Lane: a wire between the devices of two processes that is made once and serves one ring after
// another. Internal to engine/comm.
//
// A lane carries messages in the order in which they are started, and cannot tell one ring's from
// another's: its two ends must start the same messages in the same order. So it serves one ring at
// a time (lane_book.h). On GPUs it is an NCCL communicator of two ranks (nccl_lanes.h).
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/device/stream_memory.h"

namespace skein::engine {

struct LaneMessage {
  bool outgoing = false;
  std::byte* data = nullptr;
  size_t bytes = 0;  // at least 1
};

// One end. Calls by one thread at a time.
class Lane {
 public:
  // Gives up what is under way: nobody touches its buffers any more. Bounded.
  virtual ~Lane() = default;

  // Whether all that was begun, the making of the lane too, is done. Does not wait. An error: the
  // lane is of no use any more.
  virtual absl::StatusOr<bool> Done() = 0;

  // Starts these messages together. REQUIRES: Done.
  virtual absl::Status Start(std::span<const LaneMessage> messages) = 0;
};

// What both ends need to make one lane.
using LaneKey = std::array<std::byte, 128>;

// Of one device. Thread-safe.
class LaneMaker {
 public:
  virtual ~LaneMaker() = default;

  // Begins the name of the device's errors, "nccl".
  virtual const char* Name() const = 0;
  virtual absl::StatusOr<LaneKey> NewKey() = 0;
  // Begins to make end 0 or 1 of a lane. Waits for nobody; Done tells when both are made.
  virtual absl::StatusOr<std::unique_ptr<Lane>> Make(const LaneKey& key, int end) = 0;
  // For one link at a time.
  virtual absl::StatusOr<std::unique_ptr<StreamMemory>> MakeMemory() = 0;
};

}  // namespace skein::engine
