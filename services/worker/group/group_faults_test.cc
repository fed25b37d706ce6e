// Decode-workers in processes of their own, one of which is killed or stopped at a named point:
// before, during and after each phase of a formation, the lead or a member. The others work alone
// again while it is still dead or stopped, without an order where the lead can tell: each of them
// names what ended its wait, the death that it was told of or one of the limits that the test sets.
// (That they do so within these limits is shown in virtual time: tests/sim/formation_points_test.)
// What ran at them ends with the right tokens; what ran at the lost one ends, or has the right
// tokens as far as it came; no block is lost; and those that are left bind again.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "services/worker/group/testing/group_processes.h"

namespace skein::services {
namespace {

using scheduler::Switch;
using testing::FaultPoint;
using testing::GroupProcesses;
using Phase = GroupProcesses::Phase;

constexpr int kSize = 4;
constexpr int kBlocks = 32;
constexpr int64_t kLimitUs = 500'000;   // for an answer of another rank
constexpr int64_t kKeepUs = 2'000'000;  // of what is prepared
// Of a bind: a slow machine misses the limits now and then.
constexpr int kTries = 20;

// What may end the wait of a rank for another one.
constexpr const char* kDeaths[] = {"its process has ended"};
constexpr const char* kLimits[] = {"it did not answer in time",
                                   "it did not answer a reservation in time",
                                   "its step did not end in time",
                                   "the lead did not start or cancel a step in time",
                                   "the lead started no step in time",
                                   "no step of the epoch came",
                                   "the step failed"};
// It was released before, or by the test, which tells the others in the orchestrator's place.
constexpr const char* kOrders[] = {"released", "this epoch is not known here"};

template <size_t count>
bool SaysOneOf(const std::string& why, const char* const (&causes)[count]) {
  return std::any_of(causes, causes + count,
                     [&](const char* cause) { return why.find(cause) != std::string::npos; });
}

class GroupFaults : public ::testing::Test {
 protected:
  // The rank of a group of four.
  void Strike(int signal, FaultPoint point, int rank) {
    const std::string what = std::string(signal == SIGKILL ? "killed at " : "stopped at ") +
                             testing::NameOf(point) + ", rank " + std::to_string(rank);
    SCOPED_TRACE(what);
    if (HasFatalFailure()) return;  // the workers are not as they were at first
    node_.MakeGroups({0, 1, 2, 3});
    const int victim = node_.SlotOf(rank);
    for (int slot = 0; slot < kSize; ++slot) node_.Start(slot, 9, 40, 0, true);
    node_.process(victim).Arm(point, signal);
    for (int tries = 0; !Struck(victim); ++tries) {
      if (tries == kTries) FAIL() << "not struck in " << kTries << " binds\n" << node_.State();
      BindUntilStruck(point, victim);
    }

    signal == SIGKILL ? node_.Bury(victim) : node_.SetAside(victim);
    // Members have no plans to miss while they have nothing of their own to run: the orchestrator
    // tells them when the lease of a lead that is stopped has expired.
    const bool lease_expires = signal == SIGSTOP && rank == 0 && point >= FaultPoint::kBound;
    std::vector<int> others;
    for (int other = 0; other < kSize; ++other) {
      if (other == rank) continue;
      others.push_back(node_.SlotOf(other));
      if (lease_expires) node_.End(other, epoch_, Switch::kHard);
    }
    for (int other = 0; other < kSize; ++other) {
      if (other != rank) node_.AwaitEnds(other, 1, epoch_);
    }
    std::string causes;
    for (int other = 0; other < kSize; ++other) {
      if (other == rank) continue;
      const std::string why = node_.WhyEnded(other);
      causes += "\n  " + why;
      EXPECT_TRUE((signal == SIGKILL && SaysOneOf(why, kDeaths)) || SaysOneOf(why, kLimits) ||
                  SaysOneOf(why, kOrders))
          << "rank " << other << " waited for something else: " << why;
    }
    const GroupProcesses::Ends ends = node_.SettleRequests();
    EXPECT_EQ(ends.failed, 0) << "what a living worker has can go on: " << ends.why;
    EXPECT_GE(ends.whole, kSize - 1);
    std::printf("%s: %d requests whole, %d lost; the others work alone because%s\n", what.c_str(),
                ends.whole, ends.lost, causes.c_str());
    node_.MakeGroups(others);
    ASSERT_NO_FATAL_FAILURE(BindTwo());
    node_.ExpectAtRest();
    signal == SIGKILL ? node_.Restart(victim) : Return(victim);
  }

 private:
  bool Struck(int victim) { return node_.process(victim).Struck(); }
  bool AnyEnded() {
    for (int rank = 0; rank < kSize; ++rank) {
      if (node_.HasEnded(rank, epoch_)) return true;
    }
    return false;
  }
  bool AllAre(Phase phase) {
    for (int rank = 0; rank < kSize; ++rank) {
      if (!node_.IsThatFar(rank, epoch_, phase)) return false;
    }
    return true;
  }

  // All four, and releases them. A slow machine may miss the short limits: then once more.
  void BindUntilStruck(FaultPoint point, int victim) {
    const auto await = [&](const auto& so, const char* what) {
      node_.Await([&] { return Struck(victim) || so(); }, what);
      return !Struck(victim);
    };
    const auto ended = [&] {
      if (Struck(victim) || !AnyEnded()) return Struck(victim);
      node_.End(0, epoch_, Switch::kHard);
      await([&] { return AllAre(Phase::kEnded); }, "all work alone");
      return true;
    };
    epoch_ = node_.Prepare(0, kSize, scheduler::ShiftRule{.tokens = 4});
    await([&] { return AllAre(Phase::kPrepared); }, "all are prepared");
    if (ended()) return;
    node_.Commit(0, epoch_);
    for (int i = 0; i < 3; ++i) node_.Start(node_.SlotOf(0), 9 + i, 40, epoch_, /*handoff=*/i > 0);
    await([&] { return AllAre(Phase::kBound); }, "all are bound");
    if (ended()) return;
    const bool releases = point >= FaultPoint::kReleaseOrdered;
    if (!releases) await([&] { return AnyEnded(); }, "the point is reached");
    if (ended()) return;
    node_.End(0, epoch_, Switch::kHard);
    await([&] { return AllAre(Phase::kEnded); }, "all are released");
  }

  // The first two of those that are left.
  void BindTwo() {
    const int lead = node_.SlotOf(0);
    const std::string before = node_.process(lead).Ask("steps");
    for (int tries = 0; node_.process(lead).Ask("steps") == before; ++tries) {
      if (tries == kTries) FAIL() << "no step in " << kTries << " binds\n" << node_.State();
      epoch_ = node_.Prepare(0, 2, std::nullopt);
      node_.AwaitPhase(0, 2, epoch_, Phase::kPrepared);
      node_.Commit(0, epoch_);
      node_.Start(lead, 9, 20, epoch_, /*handoff=*/true);
      node_.Start(lead, 9, 20, epoch_, /*handoff=*/false);
      const GroupProcesses::Ends ends = node_.SettleRequests();
      EXPECT_GE(ends.whole, 2);  // and those whose handoff to the stopped one was given up
      EXPECT_EQ(ends.failed + ends.lost, 0) << ends.why;
      node_.End(0, epoch_, Switch::kSequential);
      node_.AwaitEnds(0, 2, epoch_);
    }
  }

  // It finds that it is alone. What it has ends.
  void Return(int victim) {
    node_.process(victim).Continue();
    node_.TakeBack(victim);
    node_.SettleRequests();
    node_.ExpectAtRest();
  }

 protected:
  GroupProcesses node_{{.worker = {.device = "cpu",
                                   .model_dir = testing::WriteTinyModel("group_faults"),
                                   .blocks = kBlocks,
                                   .limit_us = kLimitUs},
                        .size = kSize,
                        .keep_us = kKeepUs}};
  uint64_t epoch_ = 0;
};

constexpr FaultPoint kOfTheLead[] = {FaultPoint::kCommitOrdered, FaultPoint::kReleaseOrdered};
constexpr FaultPoint kOfAll[] = {FaultPoint::kPrepareOrdered, FaultPoint::kPrepared,
                                 FaultPoint::kBound,          FaultPoint::kStepLaunched,
                                 FaultPoint::kInStep,         FaultPoint::kStepEnded,
                                 FaultPoint::kEnded};

TEST_F(GroupFaults, ALeadThatIsKilled) {
  for (const FaultPoint point : kOfAll) Strike(SIGKILL, point, 0);
  for (const FaultPoint point : kOfTheLead) Strike(SIGKILL, point, 0);
}
TEST_F(GroupFaults, ALeadThatIsStopped) {
  for (const FaultPoint point : kOfAll) Strike(SIGSTOP, point, 0);
  for (const FaultPoint point : kOfTheLead) Strike(SIGSTOP, point, 0);
}
TEST_F(GroupFaults, AMemberThatIsKilled) {
  for (const FaultPoint point : kOfAll) Strike(SIGKILL, point, point < FaultPoint::kInStep ? 1 : 3);
}
TEST_F(GroupFaults, AMemberThatIsStopped) {
  for (const FaultPoint point : kOfAll) Strike(SIGSTOP, point, point < FaultPoint::kInStep ? 3 : 1);
}

}  // namespace
}  // namespace skein::services
