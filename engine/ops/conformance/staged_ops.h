// Ops of a device as Ops over host memory, for tests: each call copies what it is given to the
// device, every view into memory of its own and no larger than the view, and what was written back.
#pragma once

#include <memory>

#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// `ops` works on `device`'s memory, in the order of its copies.
std::unique_ptr<Ops> MakeStagedOps(std::unique_ptr<Device> device, std::unique_ptr<Ops> ops);

}  // namespace skein::engine
