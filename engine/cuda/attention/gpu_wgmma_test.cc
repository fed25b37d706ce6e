// On a Hopper GPU: its own kernel for wide tiles agrees with that of mma.sync. (Elsewhere the
// backend would choose the other one and go on.)
#include <memory>

#include "engine/cuda/attention/wide_choice.h"
#include "engine/cuda/device/cuda_device.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

TEST(Wgmma, AgreesOnThisGpu) {
  const std::shared_ptr<CudaDevice> gpu = OpenCudaDevice("cuda:0").value();
  const CudaDeviceInfo& info = gpu->Info();
  if (info.capability != 90) GTEST_SKIP() << "needs compute capability 9.0: " << info.name;
  const absl::Status status = CheckWgmmaAttention(gpu.get(), gpu->Stream(), info.multiprocessors);
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace skein::engine
