#include "engine/comm/testing/fault_communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "engine/comm/local/local_fabric.h"
#include "engine/comm/testing/ranks.h"

namespace skein::engine {
namespace {

using namespace std::chrono_literals;
using Group = std::vector<std::unique_ptr<Communicator>>;

CommDeadline Soon() { return std::chrono::steady_clock::now() + 200ms; }

class FaultCommunicatorTest : public testing::Test {
 protected:
  // Rank 1 of three has `fault` in its call number 1; no other call has one.
  Group WithFault(CommFault fault) {
    Group group = ranks_.GroupOfAll();
    group[1] = std::make_unique<FaultCommunicator>(
        std::move(group[1]), [=](uint64_t call) { return call == 1 ? fault : CommFault{}; });
    return group;
  }

  static absl::Status Reduce(Communicator* comm, CommDeadline deadline) {
    float value = 1;
    auto status = comm->AllReduce(&value, 1, DType::kF32, deadline);
    return status.ok() && value != 3.0f ? absl::DataLossError("a wrong sum") : status;
  }

  static std::vector<absl::Status> SecondCall(const Group& group, CommDeadline deadline) {
    return TestingRanks::Run(group, [=](Communicator* comm) {
      auto status = Reduce(comm, Later());
      return status.ok() ? Reduce(comm, deadline) : status;
    });
  }

  LocalHub hub_;
  TestingRanks ranks_{[this] { return hub_.MakeFabric(); }, 3};
};

TEST_F(FaultCommunicatorTest, DelayOnlyDelays) {
  for (const auto& end : SecondCall(WithFault({CommFault::kDelay, 20ms}), Later())) {
    EXPECT_TRUE(end.ok()) << end;
  }
}

TEST_F(FaultCommunicatorTest, StallEndsByTheDeadline) {
  for (const auto& end : SecondCall(WithFault({CommFault::kStall}), Soon())) {
    EXPECT_TRUE(absl::IsUnavailable(end) || absl::IsDeadlineExceeded(end)) << end;
  }
}

TEST_F(FaultCommunicatorTest, FailureReachesAllAtOnce) {
  const Group group = WithFault({CommFault::kFail});
  for (const auto& end : SecondCall(group, Later())) EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  EXPECT_TRUE(absl::IsUnavailable(Reduce(group[1].get(), Later())));
}

TEST_F(FaultCommunicatorTest, AbortEndsAStall) {
  const Group group = WithFault({CommFault::kStall});
  std::thread aborter([&] { group[1]->Abort(absl::CancelledError("enough")); });
  for (const auto& end : SecondCall(group, Later())) EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  aborter.join();
}

}  // namespace
}  // namespace skein::engine
