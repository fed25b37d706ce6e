// PeerOpener: memory of a device that another process of the node opens, to copy from and to it
// without this process. Implementations: CUDA's IPC (engine/cuda/device/cuda_peer_opener.h), and
// the far device of tests (far_peer_opener.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace skein::engine {

// A place in the device memory of a process, as others of its node open it: plain bytes that may
// travel.
struct PeerPlace {
  uint64_t process = 0;           // one of the node; never again another
  uint64_t allocation = 0;        // where it begins in that process
  uint64_t allocation_bytes = 0;  // what is opened is all of it
  uint64_t offset = 0;            // of the place in it
  std::byte handle[64] = {};
};

// Thread-safe.
class PeerOpener {
 public:
  virtual ~PeerOpener() = default;

  // The name of the path that the bytes then take, such as "cuda-ipc".
  virtual std::string Name() const = 0;

  // PeerPlace::process of what this process exports.
  virtual uint64_t Process() const = 0;

  // UNAVAILABLE: no memory of this device, or none that others can open. The memory must stay
  // allocated until the processes that opened it have closed it, or this process ends.
  virtual absl::StatusOr<PeerPlace> Export(const void* data) = 0;

  // The address at which copies of this process's device find the place. The allocation stays open
  // as long as the pointer, or a copy of it, lives; opened again meanwhile it is the same.
  // UNAVAILABLE: this device does not reach it, or the place is not one. A place that another
  // process forged may be memory of that process only, or open nothing.
  //
  // Opening and closing may wait for work of the device that is under way.
  virtual absl::StatusOr<std::shared_ptr<std::byte>> Open(const PeerPlace& place) = 0;
};

}  // namespace skein::engine
