// For tests: a kernel that writes where nothing is.
#pragma once

#include "engine/cuda/simt/stream.h"

namespace skein::engine {

void LaunchBadWrite(CudaStream stream);

}  // namespace skein::engine
