// DeviceFabric: communicators whose buffers lie in a device's memory, ordered with the device's own
// work, over any fabric.
//
// Order. A call runs after all work that was queued on the device before it (it calls
// Device::Synchronize, so it waits for that work). Work that is queued on the device after the call
// sees what the call received. So threads that share a buffer have to order only their calls: a
// kernel that reads a buffer must be *queued* before the call that receives into it, and need not
// be finished.
//
// Two kinds:
//   - kHostStaged: the fabric below reaches the host's memory only (UCX, in-process). Bytes are
//     copied to the host's memory, moved there, and copied back. Works anywhere, also for several
//     ranks on one GPU.
//   - kOnDevice: the fabric below takes pointers of the device (NCCL), on a stream of its own.
//
// A copy or a wait that fails breaks the group, so that no other rank waits for this one. Deadlines
// are those of Communicator, plus the time of the device's work ahead of the call.
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
