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

TEST(CheckCapability, TakesWhatKernelsRunOn) {
  CudaDeviceInfo info;
  info.id = 1;
  info.name = "NVIDIA B200";
  for (const int capability : {80, 86, 89, 90, 100, 120}) {
    info.capability = capability;
    EXPECT_TRUE(CheckCapability(info, "").ok()) << capability;
  }
  info.capability = 75;
  EXPECT_EQ(CheckCapability(info, "").message(),
            "device: 'cuda:1' (NVIDIA B200) has compute capability 7.5: 8.0 or newer is needed");
  info.capability = 100;
  const absl::Status refused = CheckCapability(info, "no kernel image is available");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      refused.message(),
      "device: 'cuda:1' (NVIDIA B200) has compute capability 10.0: this build has no code for "
      "it (no kernel image is available)");
}

TEST(WholePieces, AreOfTwoMebibytes) {
  constexpr size_t kPiece = size_t{2} << 20;
  EXPECT_EQ(WholePieces(0), kPiece);
  EXPECT_EQ(WholePieces(1), kPiece);
  EXPECT_EQ(WholePieces(kPiece), kPiece);
  EXPECT_EQ(WholePieces(kPiece + 1), 2 * kPiece);
}

}  // namespace
}  // namespace skein::engine
