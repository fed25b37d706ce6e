// Which process was silent. A loop such as the shell's, over a process that stands still at random:
// while it does, reports arrive and are not heard.
#include <map>
#include <optional>
#include <random>
#include <set>

#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

constexpr TimeUs kLeaseUs = 3 * kSecondUs;

class SilenceTest : public PlanningTest {
 protected:
  SilenceTest() {
    for (int i = 0; i < 6; ++i) {
      report_at_[Up(i < 4 ? Role::kPrefill : Role::kDecode, static_cast<uint64_t>(i + 1))] = 0;
    }
  }
  // As a worker does: a third of a lease after its last one was answered.
  void HearWhatCame() {
    for (auto& [id, at] : report_at_) {
      if (at > now_) continue;
      Report(id, {});
      at = now_ + kLeaseUs / 3 + static_cast<TimeUs>(random_() % 50'000);
    }
  }
  TimeUs NextArrival() const {
    TimeUs next = kNever;
    for (const auto& [id, at] : report_at_) next = std::min(next, at);
    return next;
  }
  // The loop wakes `late` after the next thing was due.
  void Wake(TimeUs late) {
    now_ = std::max(now_, std::min(NextArrival(), core_->NextDeadline())) + late;
    // It may be on its feet before the threads that take words from the network.
    if (random_() % 2 == 0 && now_ >= core_->NextDeadline()) Do(OrchestratorTick{});
    HearWhatCame();
    if (now_ >= core_->NextDeadline()) Do(OrchestratorTick{});
  }
  uint64_t Lost() { return core_->Snapshot(now_).instances_lost; }

  std::mt19937_64 random_;
  std::map<InstanceId, TimeUs> report_at_;
};

// An instance whose reports wait behind its other messages is alive.
TEST_F(SilenceTest, EveryMessageOfAStreamRenewsTheLease) {
  RouterConnects(7);
  for (int third = 1; third <= 12; ++third) {
    now_ += kLeaseUs / 3;
    for (const auto& [id, at] : report_at_) {
      switch (id.value % 3) {
        case 0:
          Do(AssignReplied{id, {7, 1}, {}, {}});
          break;
        case 1:
          Do(TransferOpened{id, {7, 1}, {}});
          break;
        default:
          Do(PlaceDecodeCalled{{}, {.instance = id, .id = {7, 1}}});
      }
    }
    Do(RouterEnded{{{7, 1}, RouterEnd::How::kMaxTokens, "", 1, 10}});
    if (now_ >= core_->NextDeadline()) Do(OrchestratorTick{});
    ASSERT_EQ(Lost(), 0u) << "third of a lease " << third;
    ASSERT_EQ(core_->Snapshot(now_).routers.size(), 1u);
  }
}

TEST_F(SilenceTest, AStalledOrchestratorTakesNobodyForDead) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    random_.seed(seed);
    for (int wakes = 0; wakes < 500; ++wakes) {
      // Standstills of up to four leases, one after the other or with a while between them.
      const bool stands_still = random_() % 4 == 0;
      Wake(static_cast<TimeUs>(random_() % (stands_still ? 4 * kLeaseUs : 1000)));
      ASSERT_EQ(Lost(), 0u) << "seed " << seed << ", wake " << wakes;
    }
  }
}

TEST_F(SilenceTest, ALongQueueOfEventsTakesNobodyForDead) {
  for (int rounds = 0; rounds < 50; ++rounds) {
    // Each event takes 20 ms; the reports stand behind 300 of them, and tick after tick is late.
    for (int i = 0; i < 300; ++i) {
      now_ += 20'000;
      Do(Closed({7, 1}));
    }
    HearWhatCame();
    Do(OrchestratorTick{});
    ASSERT_EQ(Lost(), 0u) << rounds;
  }
}

TEST_F(SilenceTest, TheDeadAreFoundAtTheEndOfTheirLease) {
  for (int dead = 1; dead <= 6; ++dead) {
    Wake(static_cast<TimeUs>(random_() % 1000));
    const InstanceId one = report_at_.begin()->first;
    const TimeUs heard_us = now_;
    Report(one, {});
    report_at_.erase(one);
    while (Lost() < static_cast<uint64_t>(dead)) {
      Wake(0);
      ASSERT_LE(now_, heard_us + kLeaseUs + kLeaseUs / 16);
    }
    EXPECT_GE(now_, heard_us + kLeaseUs);
  }
}

// What came late to its ears is not late of those who said it.
TEST_F(SilenceTest, AReportThatWaitedHereDoesNotDenyWhatWasAssignedMeanwhile) {
  const auto assigns = Of<CallAssign>(Submit(1, 4000));
  for (const CallAssign& assign : assigns) Answer(assign);
  now_ += 4 * kLeaseUs;
  // Made before the Assign came, heard after.
  for (const CallAssign& assign : assigns) {
    EXPECT_TRUE(Of<CallCancel>(Report(assign.instance, {})).empty());
  }
  EXPECT_EQ(core_->Snapshot(now_).replans, 0u);
}

}  // namespace
}  // namespace skein::scheduler
