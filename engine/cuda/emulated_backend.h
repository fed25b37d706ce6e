// The CUDA backend on the emulator, for tests: CudaOps with kernels that run on the CPU, and a
// Device over host memory. Memory begins on a page and AddressSanitizer knows where it ends, so
// that kernels that read or write outside are found.
#pragma once

#include <memory>

#include "engine/device/device.h"
#include "engine/ops/ops.h"

namespace skein::engine {

std::unique_ptr<Device> MakeEmulatedCudaDevice();
std::unique_ptr<Ops> MakeEmulatedCudaOps();

}  // namespace skein::engine
