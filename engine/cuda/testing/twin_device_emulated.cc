#include "engine/cuda/testing/emulated_backend.h"
#include "engine/cuda/testing/twin_device.h"

namespace skein::engine {

std::shared_ptr<Device> OpenTestingDevice() { return MakeEmulatedCudaDevice(); }
CudaStream TestingStream() { return nullptr; }

}  // namespace skein::engine
