// DeviceFabric: communicators whose buffers lie in a device's memory, ordered with the device's own
// work, over any fabric.
//
// Order. A call comes behind all that the device was asked for before it (Device::Synchronize: so
// the call waits for that work), and what it received is there for all that the device is asked for
// after it. Who shares a buffer between threads therefore only has to order the calls: a kernel
// that reads a buffer was *asked for* before the call that receives into it, and needs not be done.
//
// Two ways:
//  - kHostStaged: the fabric below reaches the host's memory only (UCX, in-process). Bytes are
//    copied to memory of the host, moved there, and copied back. Works anywhere, also for several
//    ranks on one GPU.
//  - kOnDevice: the fabric below takes pointers of the device (NCCL), on a stream of its own.
//
// A copy or wait that fails breaks the group, so that nobody waits for this rank. With bounds as
// Communicator's, plus the device's work ahead of the call.
#pragma once

#include <memory>

#include "engine/comm/fabric.h"
#include "engine/device/device.h"

namespace skein::engine {

enum class DevicePath { kHostStaged, kOnDevice };

// Of one group.
std::unique_ptr<Communicator> MakeDeviceCommunicator(std::unique_ptr<Communicator> below,
                                                     std::shared_ptr<Device> device,
                                                     DevicePath path);

std::unique_ptr<Fabric> MakeDeviceFabric(std::unique_ptr<Fabric> below,
                                         std::shared_ptr<Device> device, DevicePath path);

}  // namespace skein::engine
