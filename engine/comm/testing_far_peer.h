// For tests: the fabric of PeerLinks between FarDevices of one process.
#pragma once

#include <memory>

#include "engine/comm/fabric.h"
#include "engine/device/far_device.h"

namespace skein::engine {

// `device` is where this rank's buffers lie; the hosts' link is UCX's over shared memory.
std::unique_ptr<Fabric> MakeFarPeerFabric(std::shared_ptr<FarDevice> device);

}  // namespace skein::engine
