// Devices that are not there. True on a machine with GPUs, too.
#include <string>

#include "engine/cuda/device/cuda_device.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

TEST(OpenCudaDevice, AnIdThatTheMachineHasNotIsNamed) {
  const auto device = OpenCudaDevice("cuda:4711");
  ASSERT_FALSE(device.ok());
  const std::string text(device.status().message());
  EXPECT_EQ(text.find("device: 'cuda:4711': "), 0u) << text;
  // No driver, or so and so many devices.
  EXPECT_TRUE(device.status().code() == absl::StatusCode::kInvalidArgument ||
              device.status().code() == absl::StatusCode::kFailedPrecondition)
      << device.status();
}

TEST(OpenCudaDevice, AnotherNameIsRefused) {
  EXPECT_EQ(OpenCudaDevice("cpu").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace skein::engine
