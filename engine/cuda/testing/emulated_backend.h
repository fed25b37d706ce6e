// The CUDA backend on the emulator, for tests: CudaOps with kernels that run on the CPU, and a
// Device over host memory. Memory begins on a page and AddressSanitizer knows where it ends, so
// that kernels that read or write outside are found.
#pragma once

#include <memory>

#include "engine/cuda/graphs/graph_recorder.h"
#include "engine/cuda/ops/cuda_ops.h"
#include "engine/device/device.h"

namespace skein::engine {

// Ends the process when it is used while work is recorded, as a GPU would refuse.
std::unique_ptr<Device> MakeEmulatedCudaDevice();
std::unique_ptr<CudaOps> MakeEmulatedCudaOps(WideKernel wide = WideKernel::kMmaSync);
// A graph is the list of its launches.
std::unique_ptr<GraphRecorder> MakeEmulatedGraphRecorder();

}  // namespace skein::engine
