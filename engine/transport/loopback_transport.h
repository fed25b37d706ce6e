// Transports of one process that move bytes by memcpy: for tests, the simulator and single-process
// runs.
#pragma once

#include <memory>

#include "engine/transport/transport.h"

namespace skein::engine {

class LoopbackFabric;

// What loopback transports must share to reach one another. Thread-safe.
std::shared_ptr<LoopbackFabric> MakeLoopbackFabric();

// A transport of `fabric`. Destroying it is the death of a peer for the others.
std::unique_ptr<Transport> MakeLoopbackTransport(std::shared_ptr<LoopbackFabric> fabric);

}  // namespace skein::engine
