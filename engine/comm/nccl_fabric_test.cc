// Runs as many ranks as there are GPUs, one each.
#include "engine/comm/nccl_fabric.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "engine/comm/testing_ranks.h"

namespace skein::engine {
namespace {

int Devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

// Floats in the memory of a rank's device.
class Floats {
 public:
  Floats(int device, const std::vector<float>& values) : count_(values.size()) {
    EXPECT_EQ(cudaSetDevice(device), cudaSuccess);
    EXPECT_EQ(cudaMalloc(&data_, std::max<size_t>(4, count_ * 4)), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(data_, values.data(), count_ * 4, cudaMemcpyHostToDevice), cudaSuccess);
  }
  ~Floats() { cudaFree(data_); }

  void* data() const { return data_; }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data_), count_ * 4}; }
  std::vector<float> Read() const {
    std::vector<float> values(count_);
    EXPECT_EQ(cudaMemcpy(values.data(), data_, count_ * 4, cudaMemcpyDeviceToHost), cudaSuccess);
    return values;
  }

 private:
  void* data_ = nullptr;
  const size_t count_;
};

std::vector<float> Constant(size_t count, float value) { return std::vector<float>(count, value); }

absl::Status RunAll(Communicator* comm) {
  const int n = comm->Size(), rank = comm->Rank();
  for (const int64_t count : {0, 1, 1001, 3000001}) {
    const Floats data(rank, Constant(count, 1.0f)), all(rank, Constant(count * n, 0.0f));
    const Floats part(rank, Constant(count, 0.0f));
    auto status = comm->AllReduce(data.data(), count, DType::kF32, Later());
    if (status.ok()) status = comm->AllGather(data.bytes(), all.bytes(), Later());
    if (status.ok()) {
      status = comm->ReduceScatter(all.data(), part.data(), count, DType::kF32, Later());
    }
    if (status.ok()) {
      status =
          comm->SendRecv(part.bytes(), (rank + 1) % n, data.bytes(), (rank + n - 1) % n, Later());
    }
    if (status.ok()) status = comm->Broadcast(data.bytes(), 0, Later());
    if (!status.ok()) return status;
    if (data.Read() != Constant(count, static_cast<float>(n * n))) {
      return absl::DataLossError("a wrong sum");
    }
  }
  return absl::OkStatus();
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
    for (const auto& end : TestingRanks::Run(ranks_->GroupOfAll(), RunAll)) {
      EXPECT_TRUE(end.ok()) << end;
    }
  }
}

TEST_F(NcclFabricTest, ARankThatNeverCallsEndsTheCallByTheDeadline) {
  const auto group = ranks_->GroupOfAll();
  if (group.size() < 2) GTEST_SKIP() << "needs two GPUs";
  const auto ends = TestingRanks::Run(group, [](Communicator* comm) {
    if (comm->Rank() == 0) return absl::UnavailableError("stalls");
    const Floats data(comm->Rank(), Constant(1000, 1.0f));
    return comm->AllReduce(data.data(), 1000, DType::kF32,
                           std::chrono::steady_clock::now() + std::chrono::seconds(5));
  });
  for (const auto& end : ends) {
    EXPECT_TRUE(absl::IsUnavailable(end) || absl::IsDeadlineExceeded(end)) << end;
  }
}

TEST(NcclFabric, RefusesADeviceThatIsNotThere) {
  EXPECT_TRUE(absl::IsUnavailable(MakeNcclFabric({.tls = "self,shm,tcp"}, 1000).status()));
}

}  // namespace
}  // namespace skein::engine
