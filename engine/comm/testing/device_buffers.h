// For tests: the communicators of a device behind buffers of the host, so that the conformance
// suite runs on them. Each call's buffers are taken to the device and back by copies that nobody
// waits for but the communicator (going) and this (coming back).
#pragma once

#include <memory>

#include "engine/comm/fabric.h"
#include "engine/device/device.h"

namespace skein::engine {

// `on_device` takes pointers of `device`, ordered with its work.
std::unique_ptr<Fabric> MakeBufferedFabric(std::unique_ptr<Fabric> on_device,
                                           std::shared_ptr<Device> device);

}  // namespace skein::engine
