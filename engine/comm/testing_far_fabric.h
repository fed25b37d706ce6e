// For tests: the communicators of DeviceFabric behind buffers of the host, so that the conformance
// suite runs on them. Each call's buffers are taken to a FarDevice and back by copies that nobody
// waits for but the communicator (going) and this (coming back).
#pragma once

#include <memory>

#include "engine/comm/device_fabric.h"
#include "engine/comm/fabric.h"

namespace skein::engine {

// A device of its own, over `hosts`.
std::unique_ptr<Fabric> MakeFarFabric(std::unique_ptr<Fabric> hosts, DevicePath path);

// The same over PeerLinks from device to device (peer_link.h), all in this process.
std::unique_ptr<Fabric> MakeFarPeers();

}  // namespace skein::engine
