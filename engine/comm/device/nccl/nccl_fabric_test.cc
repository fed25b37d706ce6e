// Runs as many ranks as there are GPUs, one each.
#include "engine/comm/device/nccl/nccl_fabric.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "engine/comm/testing/gpu_checks.h"
#include "engine/comm/testing/ranks.h"

namespace skein::engine {
namespace {

int Devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

class NcclFabricTest : public testing::Test {
 protected:
  void SetUp() override {
    if (Devices() == 0) GTEST_SKIP() << "needs a GPU";
    ranks_ = std::make_unique<TestingRanks>(
        [this] {
          auto fabric = MakeNcclFabric({.tls = "self,shm,tcp"}, next_device_++);
          EXPECT_TRUE(fabric.ok()) << fabric.status();
          return *std::move(fabric);
        },
        Devices());
  }

  int next_device_ = 0;
  std::unique_ptr<TestingRanks> ranks_;
};

TEST_F(NcclFabricTest, EveryOperation) {
  for (int round = 0; round < 2; ++round) {
    for (const auto& end : TestingRanks::Run(ranks_->GroupOfAll(), [](Communicator* comm) {
           return CheckOnGpu(comm, comm->Rank());
         })) {
      EXPECT_TRUE(end.ok()) << end;
    }
  }
}

TEST_F(NcclFabricTest, ARankThatNeverCallsEndsTheCallByTheDeadline) {
  const auto group = ranks_->GroupOfAll();
  if (group.size() < 2) GTEST_SKIP() << "needs two GPUs";
  const auto ends = TestingRanks::Run(group, [](Communicator* comm) {
    if (comm->Rank() == 0) return absl::UnavailableError("stalls");
    const GpuFloats data(comm->Rank(), std::vector<float>(1000, 1.0f));
    return comm->AllReduce(data.data(), 1000, DType::kF32,
                           std::chrono::steady_clock::now() + std::chrono::seconds(5));
  });
  for (const auto& end : ends) {
    EXPECT_TRUE(absl::IsUnavailable(end) || absl::IsDeadlineExceeded(end)) << end;
  }
}

// Without a GPU, too.
TEST(NcclFabric, NcclIsLoadedWhereItIs) {
  const absl::StatusOr<int> version = NcclVersion();
  if (!version.ok()) GTEST_SKIP() << version.status();
  EXPECT_GE(*version, 21400);
}

TEST(NcclFabric, RefusesADeviceThatIsNotThere) {
  EXPECT_TRUE(absl::IsUnavailable(MakeNcclFabric({.tls = "self,shm,tcp"}, 1000).status()));
}

}  // namespace
}  // namespace skein::engine
