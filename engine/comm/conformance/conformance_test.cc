// The contract of communicator.h and fabric.h: what works.
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/comm/conformance/checks.h"
#include "engine/comm/conformance/conformance.h"
#include "engine/comm/conformance/values.h"

namespace skein::engine {
namespace {

TEST_P(CommConformance, EveryOperationAtEverySize) {
  for (int size : {1, 2, 3, 4, 8}) {
    SCOPED_TRACE(size);
    TestingRanks ranks(factory_, size);
    const auto group = ranks.GroupOfAll();
    ExpectOk(TestingRanks::Run(group, CheckEverything));
  }
}

TEST_P(CommConformance, SubsetsInAnyOrder) {
  TestingRanks ranks(factory_, 5);
  const std::vector<std::vector<int>> subsets = {{4, 1}, {3, 0, 2}, {2}, {1, 4}, {4, 3, 2, 1, 0}};
  for (const auto& members : subsets) {
    const auto group = ranks.Group(members);
    for (size_t r = 0; r < group.size(); ++r) {
      EXPECT_EQ(group[r]->Rank(), static_cast<int>(r));
      EXPECT_EQ(group[r]->Size(), static_cast<int>(members.size()));
    }
    ExpectOk(TestingRanks::Run(group, CheckEveryKind));
  }
}

TEST_P(CommConformance, ManyGroupsAtOnce) {
  TestingRanks ranks(factory_, 4);
  std::vector<std::vector<std::unique_ptr<Communicator>>> groups;
  const std::vector<std::vector<int>> subsets = {{0, 1}, {2, 3}, {0, 1, 2, 3}, {1, 3}, {0, 2}};
  for (int i = 0; i < 10; ++i) groups.push_back(ranks.Group(subsets[i % subsets.size()]));
  std::vector<std::thread> threads;
  for (const auto& group : groups) {
    threads.emplace_back([&] { ExpectOk(TestingRanks::Run(group, CheckEveryKind)); });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(CommConformance, TwoGroupsOfTheSameRanksAreIndependent) {
  TestingRanks ranks(factory_, 3);
  const auto computes = ranks.GroupOfAll(), moves = ranks.GroupOfAll();
  // The first group waits for rank 2, which comes only when all of the second has run.
  std::atomic<int> moved = 0;
  std::thread mover([&] {
    ExpectOk(TestingRanks::Run(moves, [&](Communicator* comm) {
      for (int i = 0; i < 3; ++i) {
        if (auto status = CheckRing(comm); !status.ok()) return status;
      }
      ++moved;
      moved.notify_all();
      return absl::OkStatus();
    }));
  });
  ExpectOk(TestingRanks::Run(computes, [&](Communicator* comm) {
    if (comm->Rank() == 2) {
      for (int seen = moved; seen < 3; seen = moved) moved.wait(seen);
    }
    return CheckAllReduce(comm);
  }));
  mover.join();
}

TEST_P(CommConformance, CallsWithoutDataMeet) {
  TestingRanks ranks(factory_, 4);
  std::vector<std::atomic<int>> came(20);
  const auto meet = [](int kind, Communicator* comm) {
    const std::vector<std::span<const std::byte>> send(comm->Size());
    const std::vector<std::span<std::byte>> receive(comm->Size());
    if (kind == 0) return comm->AllReduce(nullptr, 0, DType::kF32, Later());
    if (kind == 1) return comm->AllGather({}, {}, Later());
    if (kind == 2) return comm->ReduceScatter(nullptr, nullptr, 0, DType::kF32, Later());
    return comm->AllToAll(send, receive, Later());
  };
  ExpectOk(TestingRanks::Run(ranks.GroupOfAll(), [&](Communicator* comm) {
    for (int i = 0; i < 20; ++i) {
      ++came[i];
      if (auto status = meet(i % 4, comm); !status.ok()) return status;
      if (came[i] != comm->Size()) return Expect(false, "OK before all came");
    }
    return absl::OkStatus();
  }));
}

TEST_P(CommConformance, AMemberMayComeLate) {
  TestingRanks ranks(factory_, 2);
  const std::vector<int> members = {0, 1};
  const auto addresses = ranks.Addresses(members);
  auto early = ranks.fabric(0)->MakeGroup({1, 1}, addresses, 0);
  ASSERT_TRUE(early.ok()) << early.status();
  // Rank 0's messages are on their way before rank 1 has heard of the group.
  std::atomic<bool> called = false;
  absl::Status first;
  std::thread thread([&] {
    called = true;
    called.notify_all();
    first = CheckEveryKind(early->get());
  });
  called.wait(false);
  auto late = ranks.fabric(1)->MakeGroup({1, 1}, addresses, 1);
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_TRUE(CheckEveryKind(late->get()).ok());
  thread.join();
  EXPECT_TRUE(first.ok()) << first;
}

// What a rank gave before it left still arrives.
TEST_P(CommConformance, LeavingAfterTheLastCallHarmsNobody) {
  TestingRanks ranks(factory_, 4);
  for (int round = 0; round < 20; ++round) {
    auto group = ranks.GroupOfAll();
    std::vector<std::thread> threads;
    for (auto& comm : group) {
      threads.emplace_back([round, mine = std::move(comm)]() mutable {
        Bytes few(16);
        const auto status = round % 2 == 0 ? CallOnce(3, mine.get(), Later())
                                           : mine->Broadcast(few, round % 4, Later());
        EXPECT_TRUE(status.ok()) << status;
        mine.reset();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace skein::engine
