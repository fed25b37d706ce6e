// Fabrics for the threads of one process, each rank a thread: what tests use, and what the UCX
// fabric is compared with. A message is one memcpy by its receiver, straight from the sender's
// buffer. Kernels on the host only.
//
// A rank "dies" by destroying its communicator: calls that need it then end UNAVAILABLE.
#pragma once

#include <memory>

#include "engine/comm/ring_fabric.h"

namespace skein::engine {

struct LocalHubState;

// Thread-safe. Its fabrics reach one another, and no others; they may outlive it.
class LocalHub {
 public:
  LocalHub();
  std::unique_ptr<RingFabric> MakeFabric();

 private:
  std::shared_ptr<LocalHubState> state_;
};

}  // namespace skein::engine
