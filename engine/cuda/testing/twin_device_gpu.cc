#include "engine/cuda/device/cuda_device.h"
#include "engine/cuda/testing/twin_device.h"

namespace skein::engine {
namespace {

std::shared_ptr<CudaDevice> last;

}  // namespace

std::shared_ptr<Device> OpenTestingDevice() { return last = OpenCudaDevice("cuda:0").value(); }
CudaStream TestingStream() { return last->Stream(); }

}  // namespace skein::engine
