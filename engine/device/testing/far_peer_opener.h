// For tests: opens the memory of far devices (far_device.h) of other processes of this host, which
// see one another in /proc.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/device/peer_opener.h"
#include "engine/device/testing/far_device.h"

namespace skein::engine {

// For copies of any far device's stream. `device` is what can be exported. Memory that was opened
// faults when the host touches it, as the device's own.
std::unique_ptr<PeerOpener> MakeFarPeerOpener(std::shared_ptr<FarDevice> device);

// How many allocations of other processes are open in this one.
size_t FarAllocationsOpen();

}  // namespace skein::engine
