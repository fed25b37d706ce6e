// For tests: the communicators of DeviceFabric on FarDevices, behind buffers of the host
// (device_buffers.h).
#pragma once

#include <memory>

#include "engine/comm/device/device_fabric.h"
#include "engine/comm/fabric.h"

namespace skein::engine {

// A device of its own, over `hosts`.
std::unique_ptr<Fabric> MakeFarFabric(std::unique_ptr<Fabric> hosts, DevicePath path);

// The same over PeerLinks from device to device (peer_link.h), all in this process.
std::unique_ptr<Fabric> MakeFarPeers();

}  // namespace skein::engine
