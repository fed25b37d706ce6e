// Steps over communicators whose collectives are kernels, on the emulator, each rank a thread: how
// often the hosts meet, and how a step ends that goes wrong.
#include "engine/comm/device/kernels/kernel_fabric.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
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
  using Group = std::vector<std::unique_ptr<Communicator>>;
  using Duration = std::chrono::steady_clock::duration;

  explicit KernelSteps(Duration wait_max = std::chrono::seconds(60))
      : ranks_(
            [this, wait_max]() -> std::unique_ptr<Fabric> {
              KernelFabricParts parts;
              parts.hosts = std::make_shared<CountingFabric>(hub_.MakeFabric(), &calls_);
              parts.below = parts.hosts;
              parts.device = MakeCpuDevice();
              parts.opener = MakeNearOpener();
              parts.shape = kShape;
              parts.wait_max = wait_max;
              parts.copies = MakeNearCopies();
              parts.reserved_bytes = 2 * BytesOfAGroup();
              parts.warn = [this](const std::string& text) {
                const std::lock_guard lock(mutex_);
                warned_.push_back(text);
              };
              parts.queued = [this](int ranks, uint64_t bytes) {
                const std::lock_guard lock(mutex_);
                queued_[ranks] += bytes;
              };
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
  // Of all ranks.
  static size_t BytesOfAGroup() {
    return PeerMemoryBytes(kShape, GetParam()) + PeerEpochsBytes(kShape) + sizeof(PeerReport) +
           3 * 256;
  }
  // How often its hosts call in a step of kCalls sums.
  int HostCallsOfAStep(const Group& group, uint64_t tag) {
    calls_ = 0;
    for (const absl::Status& end : TestingRanks::Run(group, [&](Communicator* comm) {
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
    return calls_;
  }

  static constexpr int kCalls = 6;
  std::mutex mutex_;
  std::vector<std::string> warned_;
  std::map<int, uint64_t> queued_;  // bytes of all ranks, by the group's ranks
  std::atomic<int> calls_{0};
  LocalHub hub_;
  TestingRanks ranks_;
  Group group_;
};

TEST_P(KernelSteps, TheHostsMeetAtTheBeginningAndAtTheEnd) {
  for (uint64_t tag = 1; tag <= 3; ++tag) {
    EXPECT_EQ(HostCallsOfAStep(group_, tag), 2 * GetParam()) << "two at each rank";
  }
}

// Of a reduction what a ring would send; what a rank keeps moves nowhere. Meetings move nothing.
TEST_P(KernelSteps, EachKernelTellsItsBytes) {
  const int ranks = GetParam();
  const auto others = static_cast<uint64_t>(ranks - 1);
  queued_ = {};
  const auto ends = Run([ranks](Communicator* comm) {
    comm->Tag(7);
    std::vector<float> data(240, 1.0f);
    absl::Status status = Sum(comm, &data);
    const std::vector<std::byte> own(12);
    std::vector<std::byte> all(12 * static_cast<size_t>(ranks));
    if (status.ok()) status = comm->AllGather(own, all, Later());
    const std::vector<std::span<const std::byte>> send(static_cast<size_t>(ranks), own);
    std::vector<std::span<std::byte>> receive;
    receive.reserve(send.size());
    for (int r = 0; r < ranks; ++r) {
      receive.push_back(std::span(all).subspan(12 * static_cast<size_t>(r), 12));
    }
    if (status.ok()) status = comm->AllToAll(send, receive, Later());
    return status.ok() ? Meet(comm) : status;
  });
  for (const absl::Status& end : ends) EXPECT_TRUE(end.ok()) << end;
  const uint64_t of_a_rank = 2 * others * 240 * 4 / static_cast<uint64_t>(ranks) + 2 * others * 12;
  EXPECT_EQ(queued_, (std::map<int, uint64_t>{{ranks, of_a_rank * static_cast<uint64_t>(ranks)}}));
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

TEST_P(KernelSteps, NoKernelIsQueuedWhenTheDeadlineHasPassed) {
  for (const absl::Status& end : Run([](Communicator* comm) {
         comm->Tag(7);
         std::vector<float> data(100, 1.0f);
         const absl::Status first = Sum(comm, &data);
         EXPECT_TRUE(first.ok()) << first;
         return comm->AllReduce(data.data(), 100, DType::kF32, std::chrono::steady_clock::now());
       })) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(end) || absl::IsUnavailable(end)) << end;
  }
}

TEST_P(KernelSteps, NoKernelIsQueuedWhenTheRankHasAborted) {
  for (const absl::Status& end : Run([](Communicator* comm) {
         comm->Tag(7);
         std::vector<float> data(100, 1.0f);
         const absl::Status first = Sum(comm, &data);
         EXPECT_TRUE(first.ok() || absl::IsUnavailable(first)) << "another may have aborted";
         comm->Abort(absl::UnavailableError("test"));
         return Sum(comm, &data);
       })) {
    EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  }
}

// There is memory for two.
TEST_P(KernelSteps, AGroupThatFindsNoMemoryTakesTheFabricBelow) {
  const Group second = ranks_.GroupOfAll(), third = ranks_.GroupOfAll();
  for (const Group* group : {&second, &third}) {
    for (const absl::Status& met : TestingRanks::Run(*group, Meet)) EXPECT_TRUE(met.ok()) << met;
  }
  EXPECT_EQ(HostCallsOfAStep(second, 1), 2 * GetParam());
  EXPECT_EQ(HostCallsOfAStep(third, 1), (kCalls + 1) * GetParam());
  EXPECT_EQ(static_cast<int>(warned_.size()), GetParam()) << "once at each rank";
  EXPECT_NE(warned_.at(0).find("no memory is left"), std::string::npos) << warned_[0];
}

TEST_P(KernelSteps, MemoryOfAGroupThatRanNoStepServesTheNextOne) {
  for (int i = 0; i < 4; ++i) {
    for (const absl::Status& met : TestingRanks::Run(ranks_.GroupOfAll(), Meet)) {
      EXPECT_TRUE(met.ok()) << met;
    }
  }
  EXPECT_EQ(HostCallsOfAStep(ranks_.GroupOfAll(), 1), 4 * GetParam()) << "two to set it up";
}

// It is to be made again later, not to be slower for ever.
TEST_P(KernelSteps, AGroupWhoseMemoryRestsFailsAtAllRanks) {
  EXPECT_EQ(HostCallsOfAStep(ranks_.GroupOfAll(), 1), 4 * GetParam()) << "two to set it up";
  for (const absl::Status& met : TestingRanks::Run(ranks_.GroupOfAll(), Meet)) {
    EXPECT_TRUE(absl::IsUnavailable(met)) << met;
    EXPECT_NE(met.message().find("at the earliest"), std::string_view::npos) << met;
  }
  EXPECT_TRUE(warned_.empty());
}

TEST_P(KernelSteps, MemoryRestsAfterAStepThatBeginsWithACallWithoutData) {
  for (const absl::Status& end : TestingRanks::Run(ranks_.GroupOfAll(), [](Communicator* comm) {
         comm->Tag(7);
         std::vector<float> data(100, 1.0f);
         const absl::Status met = Meet(comm);
         return met.ok() ? Sum(comm, &data) : met;
       })) {
    EXPECT_TRUE(end.ok()) << end;
  }
  for (const absl::Status& met : TestingRanks::Run(ranks_.GroupOfAll(), Meet)) {
    EXPECT_TRUE(absl::IsUnavailable(met)) << met;
  }
}

// No deadline is near in these, and nobody aborts.
class PatientKernels : public KernelSteps {
 protected:
  PatientKernels() : KernelSteps(std::chrono::seconds(2)) {}
};

TEST_P(PatientKernels, NameARankWhoseKernelDoesNotCome) {
  const auto absent = [](Communicator* comm) { return comm->Rank() == 0; };
  const auto ends = Run([&](Communicator* comm) {
    comm->Tag(7);
    absl::Status status = Meet(comm);
    if (absent(comm) || !status.ok()) return status;
    std::vector<float> data(100, 1.0f);
    status = Sum(comm, &data);
    return status.ok() ? Meet(comm) : status;
  });
  EXPECT_TRUE(ends[0].ok()) << ends[0];
  bool named = false;
  for (size_t r = 1; r < ends.size(); ++r) {
    EXPECT_TRUE(absl::IsUnavailable(ends[r])) << ends[r];
    named |= ends[r].message().find("rank 0's GPU did not arrive in time") != std::string::npos;
  }
  EXPECT_TRUE(named) << ends[1];
  // It comes, too late: they have given the group up, and it is told.
  std::vector<float> data(100, 1.0f);
  const absl::Status late = Sum(group_[0].get(), &data);
  EXPECT_FALSE((late.ok() ? Meet(group_[0].get()) : late).ok());
}

class ImpatientKernels : public KernelSteps {
 protected:
  static constexpr auto kWaitMax = std::chrono::milliseconds(10);
  ImpatientKernels() : KernelSteps(kWaitMax) {}
};

TEST_P(ImpatientKernels, AreNotQueuedLongAfterTheMeeting) {
  const auto ends = Run([](Communicator* comm) {
    comm->Tag(7);
    const absl::Status met = Meet(comm);
    if (!met.ok()) return met;
    std::this_thread::sleep_for(kWaitMax);
    std::vector<float> data(100, 1.0f);
    return Sum(comm, &data);
  });
  int late = 0;
  for (const absl::Status& end : ends) {
    EXPECT_TRUE(absl::IsDeadlineExceeded(end) || absl::IsUnavailable(end)) << end;
    late += absl::IsDeadlineExceeded(end) ? 1 : 0;
  }
  EXPECT_GT(late, 0);
}

// With the 60 s of other tests nobody would live to see it.
TEST_P(ImpatientKernels, LeaveMemoryThatRestsOnlyAsLongAsTheyMayWrite) {
  for (const absl::Status& met : TestingRanks::Run(ranks_.GroupOfAll(), [](Communicator* comm) {
         comm->Tag(7);
         return Meet(comm);
       })) {
    EXPECT_TRUE(met.ok()) << met;
  }
  bool again = false;
  while (!again) {
    again = true;
    for (const absl::Status& met : TestingRanks::Run(ranks_.GroupOfAll(), Meet)) {
      EXPECT_TRUE(met.ok() || absl::IsUnavailable(met)) << met;
      again &= met.ok();
    }
  }
  EXPECT_TRUE(warned_.empty());
}

INSTANTIATE_TEST_SUITE_P(Ranks, KernelSteps, ::testing::Values(2, 4));
INSTANTIATE_TEST_SUITE_P(Ranks, PatientKernels, ::testing::Values(2, 4));
INSTANTIATE_TEST_SUITE_P(Ranks, ImpatientKernels, ::testing::Values(2, 4));

}  // namespace
}  // namespace skein::engine
