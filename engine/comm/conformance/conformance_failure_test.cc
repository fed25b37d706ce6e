// The contract of communicator.h: aborts, deadlines, ranks that leave.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/conformance/checks.h"
#include "engine/comm/conformance/conformance.h"
#include "engine/comm/conformance/values.h"

namespace skein::engine {
namespace {

CommDeadline Soon() { return std::chrono::steady_clock::now() + std::chrono::milliseconds(100); }

// Not OK in any of the ways of a peer's failure.
bool Ended(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
}

// However short: where the call was OK, the next is not.
TEST_P(CommConformance, AFailureElsewhereBreaksTheRankThatHadItsOk) {
  TestingRanks ranks(factory_, 3);
  const auto group = ranks.GroupOfAll();
  TestingRanks::Run(group, [&](Communicator* comm) {
    Bytes data(16);
    if (comm->Rank() == 1) comm->Abort(absl::CancelledError("enough"));
    return comm->Broadcast(data, 0, Later());
  });
  ExpectOk(TestingRanks::Run(group, [](Communicator* comm) {
    const auto met = comm->AllReduce(nullptr, 0, DType::kF32, Later());
    return Expect(absl::IsUnavailable(met), "not broken");
  }));
}

TEST_P(CommConformance, AbortEndsEveryCallWithItsReason) {
  TestingRanks ranks(factory_, 3);
  for (int kind = 0; kind < kKinds; ++kind) {
    SCOPED_TRACE(kind);
    const auto group = ranks.GroupOfAll();
    const auto ends = TestingRanks::Run(group, [&](Communicator* comm) {
      if (comm->Rank() == 1) {
        comm->Abort(absl::CancelledError("step 17 was cancelled"));
        return absl::UnavailableError("step 17 was cancelled");
      }
      return CallOnce(kind, comm, Later());
    });
    for (const auto& end : ends) {
      EXPECT_TRUE(absl::IsUnavailable(end)) << end;
      EXPECT_NE(std::string(end.message()).find("step 17 was cancelled"), std::string::npos) << end;
    }
    ExpectOk(TestingRanks::Run(group, CheckBroken));
    group[0]->Abort(absl::CancelledError("again"));
    ExpectOk(TestingRanks::Run(ranks.GroupOfAll(), CheckAllToAll));
  }
}

TEST_P(CommConformance, AbortFromAnotherThreadEndsABlockedCall) {
  TestingRanks ranks(factory_, 2);
  const auto group = ranks.GroupOfAll();
  std::thread caller([&] {
    const auto end = CallOnce(0, group[0].get(), Later());  // rank 1 never calls
    EXPECT_TRUE(absl::IsUnavailable(end)) << end;
  });
  group[0]->Abort(absl::CancelledError("enough"));
  caller.join();
  ExpectOk(TestingRanks::Run(group, CheckBroken));
}

TEST_P(CommConformance, AGroupAbortedBeforeItIsMadeIsBroken) {
  TestingRanks ranks(factory_, 2);
  const std::vector<int> members = {0, 1};
  const auto addresses = ranks.Addresses(members);
  auto first = ranks.fabric(0)->MakeGroup({3, 3}, addresses, 0);
  ASSERT_TRUE(first.ok());
  (*first)->Abort(absl::CancelledError("never mind"));
  first->reset();
  auto second = ranks.fabric(1)->MakeGroup({3, 3}, addresses, 1);
  ASSERT_TRUE(second.ok());
  const auto end = CallOnce(0, second->get(), Later());
  EXPECT_TRUE(absl::IsUnavailable(end)) << end;
}

TEST_P(CommConformance, ARankThatNeverCallsEndsTheCallByTheDeadline) {
  TestingRanks ranks(factory_, 3);
  for (int kind = 0; kind < kKinds; ++kind) {
    SCOPED_TRACE(kind);
    const auto group = ranks.GroupOfAll();
    const auto ends = TestingRanks::Run(group, [&](Communicator* comm) {
      return comm->Rank() == 2 ? absl::UnavailableError("stalls") : CallOnce(kind, comm, Soon());
    });
    for (const auto& end : ends) EXPECT_TRUE(Ended(end)) << end;
    // Word reaches the stalled one, whenever it calls.
    EXPECT_TRUE(absl::IsUnavailable(CallOnce(kind, group[2].get(), Later())));
    ExpectOk(TestingRanks::Run(group, CheckBroken));
    ExpectSurvivorsWork(&ranks, 2);
  }
}

TEST_P(CommConformance, OneEarlyDeadlineEndsTheCallOnAll) {
  TestingRanks ranks(factory_, 4);
  const auto group = ranks.GroupOfAll();
  const auto ends = TestingRanks::Run(group, [&](Communicator* comm) {
    if (comm->Rank() == 3) return absl::UnavailableError("stalls");
    return CallOnce(0, comm, comm->Rank() == 1 ? Soon() : Later());
  });
  for (const auto& end : ends) EXPECT_TRUE(Ended(end)) << end;
  ExpectSurvivorsWork(&ranks, 3);
}

TEST_P(CommConformance, ARankThatLeavesEndsTheCall) {
  TestingRanks ranks(factory_, 3);
  for (int kind = 0; kind < kKinds; ++kind) {
    SCOPED_TRACE(kind);
    auto group = ranks.GroupOfAll();
    ExpectOk(TestingRanks::Run(group, CheckBroadcast));
    group.erase(group.begin());
    const auto ends =
        TestingRanks::Run(group, [&](Communicator* comm) { return CallOnce(kind, comm, Later()); });
    for (const auto& end : ends) EXPECT_TRUE(absl::IsUnavailable(end)) << end;
    ExpectSurvivorsWork(&ranks, 0);
  }
}

}  // namespace
}  // namespace skein::engine
