#include <string>

#include "engine/cuda/device/cuda_device.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

TEST(ParseCudaDevice, TakesTheId) {
  EXPECT_EQ(ParseCudaDevice("cuda:0").value(), 0);
  EXPECT_EQ(ParseCudaDevice("cuda:17").value(), 17);
}

TEST(ParseCudaDevice, NamesTheFieldAndTheValue) {
  for (const std::string name : {"cuda", "cuda:", "cuda:x", "cuda:-1", "cuda:1 ", "cuda:0x1",
                                 "gpu:0", "", "cuda:99999999999"}) {
    const auto id = ParseCudaDevice(name);
    ASSERT_EQ(id.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(std::string(id.status().message()),
              "device: '" + name + "' is not cuda:N with N from 0");
  }
}

}  // namespace
}  // namespace skein::engine
