// For tests: a fabric that takes pointers of a FarDevice, as NCCL takes a GPU's: it moves what the
// memory holds at the time of the call, and knows nothing of the work that the device still owes.
#pragma once

#include <memory>

#include "engine/comm/fabric.h"
#include "engine/device/testing/far_device.h"

namespace skein::engine {

std::unique_ptr<Fabric> MakeNearFabric(std::shared_ptr<Fabric> hosts,
                                       std::shared_ptr<FarDevice> device);

}  // namespace skein::engine
