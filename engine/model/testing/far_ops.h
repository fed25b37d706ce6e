// Ops on a FarDevice: whatever is asked for runs later, when somebody waits for the device.
#pragma once

#include <memory>

#include "engine/device/testing/far_device.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// `ops` are of the host; they run on the memory behind the device's pointers.
std::unique_ptr<Ops> MakeFarOps(std::shared_ptr<FarDevice> device, std::unique_ptr<Ops> ops);

}  // namespace skein::engine
