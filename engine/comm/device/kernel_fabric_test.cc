// Steps over communicators whose collectives are kernels, on the emulator, each rank a thread: how
// often the hosts meet, and how a step ends that goes wrong.
#include "engine/comm/device/kernel_fabric.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/near_copies.h"
#include "engine/comm/testing/ranks.h"
#include "engine/cuda/testing/near_opener.h"
#include "engine/device/cpu_device.h"

namespace skein::engine {
namespace {

constexpr PeerShape kShape = {
    .lanes = 2, .slot_bytes = 4 << 10, .segment_bytes_min = 1 << 10, .threads = 32};

// Counts the calls on the hosts' communicators.
class CountingFabric final : public Fabric {
 public:
  CountingFabric(std::unique_ptr<Fabric> fabric, std::atomic<int>* calls)
      : fabric_(std::move(fabric)), calls_(calls) {}
  const std::string& Address() const override { return fabric_->Address(); }
  absl::StatusOr<std::unique_ptr<Communicator>> MakeGroup(GroupId id,
                                                          std::span<const std::string> addresses,
                                                          int rank) override {
    auto made = fabric_->MakeGroup(id, addresses, rank);
    if (!made.ok()) return made;
    return std::make_unique<Counting>(*std::move(made), calls_);
  }

 private:
  class Counting final : public Communicator {
   public:
    Counting(std::unique_ptr<Communicator> comm, std::atomic<int>* calls)
        : comm_(std::move(comm)), calls_(calls) {}
    int Rank() const override { return comm_->Rank(); }
    int Size() const override { return comm_->Size(); }
    void Tag(uint64_t tag) override { comm_->Tag(tag); }
    absl::Status AllReduce(void* data, int64_t count, DType dtype, CommDeadline until) override {
      ++*calls_;
      return comm_->AllReduce(data, count, dtype, until);
    }
    absl::Status AllGather(std::span<const std::byte> send, std::span<std::byte> receive,
                           CommDeadline until) override {
      ++*calls_;
      return comm_->AllGather(send, receive, until);
    }
    absl::Status ReduceScatter(const void* send, void* receive, int64_t count, DType dtype,
                               CommDeadline until) override {
      ++*calls_;
      return comm_->ReduceScatter(send, receive, count, dtype, until);
    }
    absl::Status AllToAll(std::span<const std::span<const std::byte>> send,
                          std::span<const std::span<std::byte>> receive,
                          CommDeadline until) override {
      ++*calls_;
      return comm_->AllToAll(send, receive, until);
    }
    absl::Status SendRecv(std::span<const std::byte> send, int to, std::span<std::byte> receive,
                          int from, CommDeadline until) override {
      ++*calls_;
      return comm_->SendRecv(send, to, receive, from, until);
    }
    absl::Status Broadcast(std::span<std::byte> data, int root, CommDeadline until) override {
      ++*calls_;
      return comm_->Broadcast(data, root, until);
    }
    void Abort(const absl::Status& reason) override { comm_->Abort(reason); }

   private:
    const std::unique_ptr<Communicator> comm_;
    std::atomic<int>* const calls_;
  };

  const std::unique_ptr<Fabric> fabric_;
  std::atomic<int>* const calls_;
};

class KernelSteps : public ::testing::TestWithParam<int> {
 protected:
  KernelSteps()
      : ranks_(
            [this]() -> std::unique_ptr<Fabric> {
              KernelFabricParts parts;
              parts.hosts = std::make_shared<CountingFabric>(hub_.MakeFabric(), &calls_);
              parts.below = parts.hosts;
              parts.device = MakeCpuDevice();
              parts.opener = MakeNearOpener();
              parts.shape = kShape;
              parts.copies = MakeNearCopies();
              parts.reserved_bytes = 2 * KernelBytesOfNode(kShape, GetParam());
              return MakeKernelFabric(std::move(parts)).value();
            },
            GetParam()),
        group_(ranks_.GroupOfAll()) {
    // Set up, as GroupContexts does.
    for (const absl::Status& met : Run([](Communicator* comm) { return Meet(comm); })) {
      EXPECT_TRUE(met.ok()) << met;
    }
    calls_ = 0;
  }

  static absl::Status Meet(Communicator* comm) { return comm->AllGather({}, {}, Later()); }
  static absl::Status Sum(Communicator* comm, std::vector<float>* data) {
    return comm->AllReduce(data->data(), static_cast<int64_t>(data->size()), DType::kF32, Later());
  }
  std::vector<absl::Status> Run(const std::function<absl::Status(Communicator*)>& body) {
    return TestingRanks::Run(group_, body);
  }

  std::atomic<int> calls_{0};
  LocalHub hub_;
  TestingRanks ranks_;
  std::vector<std::unique_ptr<Communicator>> group_;
};

TEST_P(KernelSteps, TheHostsMeetAtTheBeginningAndAtTheEnd) {
  constexpr int kCalls = 6;
  const auto step = [&](uint64_t tag) {
    for (const absl::Status& end : Run([&](Communicator* comm) {
           comm->Tag(tag);
           std::vector<float> data(100, 1.0f);
           absl::Status status;
           for (int call = 0; status.ok() && call < kCalls; ++call) status = Sum(comm, &data);
           if (status.ok()) status = Meet(comm);
           float expected = 1;
           for (int call = 0; call < kCalls; ++call) expected *= static_cast<float>(GetParam());
           EXPECT_EQ(data, std::vector<float>(100, expected));
           return status;
         })) {
      EXPECT_TRUE(end.ok()) << end;
    }
  };
  for (uint64_t tag = 1; tag <= 3; ++tag) {
    calls_ = 0;
    step(tag);
    EXPECT_EQ(calls_, 2 * GetParam()) << "two at each rank";
  }
}

TEST_P(KernelSteps, RanksWithOtherTagsFindOutAtTheFirstCall) {
  const auto ends = Run([](Communicator* comm) {
    comm->Tag(comm->Rank() == 1 ? 8 : 7);
    std::vector<float> data(100, 1.0f);
    return Sum(comm, &data);
  });
  int differ = 0;
  for (const absl::Status& end : ends) {
    EXPECT_TRUE(absl::IsInternal(end) || absl::IsUnavailable(end)) << end;
    differ += absl::IsInternal(end) ? 1 : 0;
  }
  EXPECT_GT(differ, 0);
}

TEST_P(KernelSteps, CallsThatDifferWithinAStepAreFoundByItsEnd) {
  const auto ends = Run([](Communicator* comm) {
    comm->Tag(7);
    std::vector<float> data(100, 1.0f);
    absl::Status status = Sum(comm, &data);
    data.resize(comm->Rank() == 1 ? 60 : 100);
    if (status.ok()) status = Sum(comm, &data);
    return status.ok() ? Meet(comm) : status;
  });
  for (const absl::Status& end : ends) {
    EXPECT_TRUE(absl::IsInternal(end) || absl::IsUnavailable(end)) << end;
  }
}

// Its kernels wait for a rank that does not come; no deadline is near.
TEST_P(KernelSteps, AnAbortEndsTheKernelsThatWait) {
  std::atomic<int> inside = 0;
  std::thread aborts([&] {
    while (inside < GetParam() - 1) std::this_thread::yield();
    for (const auto& comm : group_) comm->Abort(absl::UnavailableError("a rank has died"));
  });
  const auto ends = Run([&](Communicator* comm) {
    comm->Tag(7);
    std::vector<float> data(100, 1.0f);
    absl::Status status = Sum(comm, &data);
    if (comm->Rank() == 0 || !status.ok()) return status;
    ++inside;
    status = Sum(comm, &data);
    return status.ok() ? Meet(comm) : status;
  });
  aborts.join();
  for (size_t r = 1; r < ends.size(); ++r) EXPECT_TRUE(absl::IsUnavailable(ends[r])) << ends[r];
}

TEST_P(KernelSteps, AGroupThatFindsNoMemoryTakesTheFabricBelow) {
  const auto one = ranks_.GroupOfAll(), two = ranks_.GroupOfAll(), three = ranks_.GroupOfAll();
  for (const auto* group : {&one, &two, &three}) {
    for (const absl::Status& end : TestingRanks::Run(*group, [](Communicator* comm) {
           std::vector<float> data(100, 1.0f);
           absl::Status status = Sum(comm, &data);
           EXPECT_EQ(data, std::vector<float>(100, static_cast<float>(comm->Size())));
           return status.ok() ? Meet(comm) : status;
         })) {
      EXPECT_TRUE(end.ok()) << end;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, KernelSteps, ::testing::Values(2, 4));

}  // namespace
}  // namespace skein::engine
