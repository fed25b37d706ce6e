// RingFabric: the links of one instance to the others of its pool, and rings over them.
//
// A ring (one prompt's chunk on several instances) has no communicator of its own: it is a sequence
// of links, one for each pair of instances. Links are made when an instance joins the pool
// (Connect), before any ring needs them. A ring only marks its messages with its name, so that
// those of one that ended or was given up are told from those of another between the same
// instances: opening one creates no connection, no memory of the device and no trial of a path, and
// breaking one leaves the links as they are. (Over NCCL, which has no way to break one exchange
// alone, a ring that is broken while it moves bytes takes the communicators of its pairs with it;
// the next ring makes them again. comm/device/lane_book.h)
//
// Links are made again only with a process that came in the place of one that died: it has another
// address.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/comm/fabric.h"

namespace skein::engine {

// Since the fabric was made.
struct FabricCounts {
  uint64_t links = 0;   // other processes that this one was connected to
  uint64_t groups = 0;  // communicators with what belongs to them: MakeGroup's, and NCCL's of pairs
  uint64_t lost = 0;    // links whose process was found dead, or could not be reached at all
};

class RingFabric : public Fabric {
 public:
  // Makes the link to the process at `address`, unless there is one. Does not wait for it. Any
  // thread. INVALID_ARGUMENT: a malformed or foreign address. UNAVAILABLE: it cannot be reached, it
  // counts as dead from now on. RESOURCE_EXHAUSTED: no descriptors or memory now; a ring with it
  // tries again.
  virtual absl::Status Connect(const std::string& address) = 0;

  // Whether there is a link to the process at `address`, which was not found dead so far. Makes
  // none. Any thread.
  virtual bool Connected(const std::string& address) const = 0;

  // This process's part in a ring, as in MakeGroup. Links that are missing are made, and counted.
  virtual absl::StatusOr<std::unique_ptr<Communicator>> OpenRing(
      GroupId name, std::span<const std::string> addresses, int rank) = 0;

  virtual FabricCounts Made() const = 0;  // any thread
};

}  // namespace skein::engine
