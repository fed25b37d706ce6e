// The choice of the kernel for wide tiles, and the check before it, on the emulator.
#include "engine/cuda/attention/wide_choice.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda/emulator/grid.h"
#include "engine/device/cpu_device.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr int kMultiprocessors = 3;  // of the emulator

// Of what comes back, the `broken`th copy has one float less than it should.
class FaultyDevice final : public Device {
 public:
  explicit FaultyDevice(int broken) : broken_(broken) {}
  absl::StatusOr<void*> Alloc(size_t bytes) override {
    if (out_of_memory) return absl::ResourceExhaustedError("no memory is left");
    return host_->Alloc(bytes);
  }
  void Free(void* pointer, size_t bytes) override { host_->Free(pointer, bytes); }
  absl::Status Copy(void* to, const void* from, size_t bytes, CopyKind kind) override {
    const absl::Status status = host_->Copy(to, from, bytes, kind);
    if (kind == CopyKind::kDeviceToHost && ++copies_ == broken_) {
      static_cast<float*>(to)[5000] -= 0.125f;
    }
    return status;
  }
  absl::Status Synchronize() override { return host_->Synchronize(); }
  absl::StatusOr<uint64_t> Mark() override { return host_->Mark(); }
  absl::StatusOr<bool> Done(uint64_t mark) override { return host_->Done(mark); }
  absl::StatusOr<MemoryUse> MemoryInfo() override { return host_->MemoryInfo(); }
  bool IsHost() const override { return false; }

  bool out_of_memory = false;

 private:
  const std::unique_ptr<Device> host_ = MakeCpuDevice();
  const int broken_;
  int copies_ = 0;
};

class WideChoice : public testing::Test {
 protected:
  WideKernel Choose(Device* device, int capability) {
    return ChooseWideKernel(device, nullptr,
                            {"cuda:0", capability, kMultiprocessors, std::chrono::hours(1)},
                            [this](const std::string& what) { warnings_.push_back(what); });
  }
  std::vector<std::string> warnings_;
};

TEST_F(WideChoice, HopperThatAgreesHasItsOwnKernel) {
  FaultyDevice device(/*broken=*/0);
  EXPECT_EQ(Choose(&device, 90), WideKernel::kWgmma);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(WideChoice, OtherGpusRunNothing) {
  FaultyDevice device(/*broken=*/0);
  const int64_t grids = simt::GridCounters().grids;
  for (const int capability : {80, 86, 89, 100}) {
    EXPECT_EQ(Choose(&device, capability), WideKernel::kMmaSync);
  }
  EXPECT_EQ(simt::GridCounters().grids, grids);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(WideChoice, AVariableTurnsItOff) {
  FaultyDevice device(/*broken=*/0);
  const int64_t grids = simt::GridCounters().grids;
  ASSERT_EQ(setenv(kWgmmaVariable, "0", 1), 0);
  EXPECT_EQ(Choose(&device, 90), WideKernel::kMmaSync);
  unsetenv(kWgmmaVariable);
  EXPECT_EQ(simt::GridCounters().grids, grids);
}

// Copies back: output and log-sum-exp of mma.sync, of wgmma, and of wgmma again.
TEST_F(WideChoice, ADifferenceIsToldAndTheOtherKernelTaken) {
  FaultyDevice wrong(/*broken=*/3);
  EXPECT_EQ(Choose(&wrong, 90), WideKernel::kMmaSync);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("cuda:0"), std::string::npos) << warnings_[0];
  EXPECT_NE(warnings_[0].find("bf16, head_dim 128: output of token 9, head 3, element 8 is"),
            std::string::npos)
      << warnings_[0];
  FaultyDevice unsteady(/*broken=*/5);
  EXPECT_EQ(Choose(&unsteady, 90), WideKernel::kMmaSync);
  ASSERT_EQ(warnings_.size(), 2u);
  EXPECT_NE(warnings_[1].find("a second run's"), std::string::npos) << warnings_[1];
}

TEST_F(WideChoice, TooLittleMemoryForTheCheckIsTold) {
  FaultyDevice device(/*broken=*/0);
  device.out_of_memory = true;
  EXPECT_EQ(Choose(&device, 90), WideKernel::kMmaSync);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_NE(warnings_[0].find("no memory is left"), std::string::npos) << warnings_[0];
}

}  // namespace
}  // namespace skein::engine
