// Ranks as processes that are killed and stopped for real.
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/comm/testing/process.h"

namespace skein::engine {
namespace {

constexpr int kLongMs = 120000;  // no healthy call takes so long

class ProcessTest : public testing::TestWithParam<const char*> {
 protected:
  void Start(int ranks) {
    for (int r = 0; r < ranks; ++r) ranks_.push_back(std::make_unique<RankProcess>(GetParam()));
  }

  void MakeGroup() {
    std::vector<std::string> addresses;
    for (const auto& rank : ranks_) addresses.push_back(rank->address());
    ++id_;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      EXPECT_EQ(ranks_[r]->Join(id_, addresses, static_cast<int>(r)), "OK");
    }
  }

  void WorkOnAll(int rounds, int deadline_ms) {
    for (const auto& rank : ranks_) rank->Work(rounds, deadline_ms);
  }

  void ExpectAllEnd(const std::string& code) {
    for (size_t r = 0; r < ranks_.size(); ++r) EXPECT_EQ(ranks_[r]->AwaitEnd(), code) << r;
  }

  // All start, and work until one of them fails.
  void WorkOnAllWithoutEnd(int deadline_ms) {
    WorkOnAll(0, deadline_ms);
    for (const auto& rank : ranks_) rank->AwaitFirstRound();
  }

  void ExpectSurvivorsWork() {
    MakeGroup();
    WorkOnAll(3, kLongMs);
    ExpectAllEnd("OK");
  }

  std::vector<std::unique_ptr<RankProcess>> ranks_;
  uint64_t id_ = 0;
};

TEST_P(ProcessTest, MoreRanksThanCores) {
  Start(8);
  MakeGroup();
  WorkOnAll(5, kLongMs);
  ExpectAllEnd("OK");
}

TEST_P(ProcessTest, AKilledRankEndsTheCallLongBeforeTheDeadline) {
  Start(4);
  MakeGroup();
  WorkOnAllWithoutEnd(kLongMs);
  ranks_[2]->Signal(SIGKILL);
  ranks_.erase(ranks_.begin() + 2);
  ExpectAllEnd("UNAVAILABLE");
  ExpectSurvivorsWork();
}

TEST_P(ProcessTest, AStoppedRankEndsTheCallByTheDeadline) {
  Start(3);
  MakeGroup();
  WorkOnAllWithoutEnd(1000);
  ranks_[0]->Signal(SIGSTOP);
  const auto stopped = std::move(ranks_[0]);
  ranks_.erase(ranks_.begin());
  int own_clock = 0;
  for (const auto& rank : ranks_) {
    const std::string end = rank->AwaitEnd();
    EXPECT_TRUE(end == "UNAVAILABLE" || end == "DEADLINE_EXCEEDED") << end;
    own_clock += end == "DEADLINE_EXCEEDED" ? 1 : 0;
  }
  EXPECT_GT(own_clock, 0);
  ExpectSurvivorsWork();
  stopped->Signal(SIGCONT);
  const std::string end = stopped->AwaitEnd();
  EXPECT_TRUE(end == "UNAVAILABLE" || end == "DEADLINE_EXCEEDED") << end;
}

// Over shared memory such a rank looks alive to UCX.
TEST_P(ProcessTest, AKilledRankThatIsNotReapedEndsTheCallLongBeforeTheDeadline) {
  Start(4);
  MakeGroup();
  WorkOnAllWithoutEnd(kLongMs);
  ranks_[2]->Signal(SIGKILL);
  const auto killed = std::move(ranks_[2]);
  ranks_.erase(ranks_.begin() + 2);
  ExpectAllEnd("UNAVAILABLE");
  ExpectSurvivorsWork();
}

TEST_P(ProcessTest, AllButOneKilled) {
  Start(4);
  MakeGroup();
  WorkOnAllWithoutEnd(kLongMs);
  for (int r = 0; r < 3; ++r) ranks_[r]->Signal(SIGKILL);
  ranks_.erase(ranks_.begin(), ranks_.begin() + 3);
  ExpectAllEnd("UNAVAILABLE");
  ExpectSurvivorsWork();
}

// The others have not made its group, and do not know it.
TEST_P(ProcessTest, AStrangerIsKilledInItsFirstCall) {
  Start(4);
  std::vector<std::string> addresses;
  for (const auto& rank : ranks_) addresses.push_back(rank->address());
  EXPECT_EQ(ranks_[3]->Join(++id_, addresses, 3), "OK");
  ranks_[3]->Work(0, kLongMs);
  ranks_[3]->Signal(SIGKILL);
  ranks_.pop_back();
  ExpectSurvivorsWork();
}

INSTANTIATE_TEST_SUITE_P(Wires, ProcessTest, testing::Values("self,shm", "self,tcp"),
                         [](const auto& info) {
                           return std::string(info.param) == "self,shm" ? "SharedMemory" : "Tcp";
                         });

}  // namespace
}  // namespace skein::engine
