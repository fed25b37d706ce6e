// The device that a test of CUDA code runs on: the emulator's or the first GPU, whichever the test
// is linked with.
#pragma once

#include <memory>

#include "engine/cuda/simt/stream.h"
#include "engine/device/device.h"

namespace skein::engine {

std::shared_ptr<Device> OpenTestingDevice();
// Of the device that was opened last.
CudaStream TestingStream();

}  // namespace skein::engine
