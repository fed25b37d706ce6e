// Decode-workers with models on CPUs that are bound and released, in one process: real shells,
// engines, communicators and feeds, an orchestrator that says when. Sequences that were preempted
// run in the group. Whatever the formation did, every token is the one of an instance alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/worker/group/testing/bound_workers.h"

namespace skein::services {
namespace {

using scheduler::SpecPtr;
using scheduler::Switch;
using testing::BoundWorkers;
using testing::TinyModelAlone;

constexpr int kBlocks = 40;  // a request needs up to 34: two do not fit one instance

// Each request needs most of the lead's pool.
SpecPtr RequestOf(uint64_t serial, int64_t max_tokens) {
  return testing::TinyRequest(serial, static_cast<int64_t>(9 + serial * 5 % 8), max_tokens);
}

class BoundWorkersTest : public ::testing::TestWithParam<int> {
 protected:
  int size() const { return GetParam(); }
  // The last ones to come are preempted.
  void StartAtLead(int requests) {
    for (int i = 0; i < requests; ++i) group_.lead().Start(RequestOf(++serial_, 120), &alone_);
  }

  const std::string dir_ = testing::WriteTinyModel("bound_workers");
  TinyModelAlone alone_{dir_};
  BoundWorkers group_{dir_, size(), kBlocks, "on"};
  uint64_t serial_ = 0;
};

// Pinned at its size: it is never a formation in name only.
TEST_P(BoundWorkersTest, PinnedEachMemberRunsTheStepsMovesBytesAndHoldsItsPartOfTheBlocks) {
  group_.Bind();
  group_.lead().engine().Hold();
  StartAtLead(5);
  group_.lead().engine().HoldAtStep({.sequences = 2});
  for (int i = 1; i < size(); ++i) group_.workers()[i]->Start(RequestOf(++serial_, 60), &alone_);
  group_.lead().engine().Go();

  // Every member is in the step that the lead's engine holds.
  const testing::WatchedEngine::StepKv kv = group_.lead().engine().AwaitHeld();
  const int64_t held = group_.lead().Look().group_blocks;
  EXPECT_GE(kv.blocks * size(), kv.blocks_alone);
  EXPECT_LE(kv.blocks, kv.blocks_alone / size() + kv.sequences);
  EXPECT_GE(held, kv.blocks);
  for (const auto& worker : group_.workers()) {
    BoundWorkers::AwaitThat([&] { return worker->Look().group_blocks == held; });
  }
  group_.lead().engine().Go();

  for (const auto& worker : group_.workers()) worker->ExpectTokensOfOneAlone(&alone_);
  group_.Release(Switch::kSequential);
  const std::vector<StepTotals> steps = group_.lead().GroupSteps();
  ASSERT_EQ(steps.size(), 2u) << "of TP, and of SP above the ordered number of tokens";
  for (const StepTotals& one : steps) {
    EXPECT_TRUE(one.mode == "tp" || one.mode == "sp") << one.mode;
    EXPECT_EQ(one.ranks, size());
    EXPECT_GT(one.steps, 0u);
  }
  for (const auto& worker : group_.workers()) {
    EXPECT_EQ(worker->GroupSteps(), steps);
    EXPECT_GT(worker->shell().StepTotalsByMode()[0].steps, 0u) << "own ones, in turn";
    const std::vector<engine::CommTotals> ways = worker->shell().GroupWays();
    const auto way = std::find_if(ways.begin(), ways.end(),
                                  [this](const auto& one) { return one.ranks == size(); });
    ASSERT_NE(way, ways.end());
    EXPECT_GT(way->bytes, 0u);
    EXPECT_TRUE(worker->shell().CheckInvariants().ok());
    EXPECT_EQ(worker->Look().blocks.free, kBlocks);
  }
}

// The sequences of the group go back to the lead and come again, or end before it is released.
TEST_P(BoundWorkersTest, SwitchesInFlightChangeNoToken) {
  uint64_t steps_before = 0;
  const auto group_steps = [this] {
    uint64_t steps = 0;
    for (const StepTotals& one : group_.lead().GroupSteps()) steps += one.steps;
    return steps;
  };
  for (const Switch how : {Switch::kHard, Switch::kSequential, Switch::kHard}) {
    StartAtLead(3);
    group_.Bind();
    BoundWorkers::AwaitThat([&] { return group_steps() >= steps_before + 10; });
    group_.Release(how);
    steps_before = group_steps();
  }
  for (const auto& worker : group_.workers()) {
    worker->ExpectTokensOfOneAlone(&alone_);
    EXPECT_TRUE(worker->shell().CheckInvariants().ok());
    BoundWorkers::AwaitThat([&] { return worker->Look().blocks.free == kBlocks; });
  }
}

INSTANTIATE_TEST_SUITE_P(OfSize, BoundWorkersTest, ::testing::Values(2, 4));

class GroupOfFourTest : public BoundWorkersTest {};

// Above the ordered number of tokens in SP 2 x TP 2, and then, under another bind, in pure SP: the
// same sequences go on from the KV that steps of every shape have written.
TEST_P(GroupOfFourTest, EveryBaseGivesTheTokensOfOneAlone) {
  const auto steps_in = [this](const std::string& mode) {
    uint64_t steps = 0;
    for (const StepTotals& one : group_.lead().GroupSteps()) {
      if (one.mode == mode) steps += one.steps;
    }
    return steps;
  };
  for (const auto& [base_tp, mode] : {std::pair(2, "sp_tp"), std::pair(1, "sp")}) {
    StartAtLead(3);
    group_.Bind(base_tp);
    BoundWorkers::AwaitThat([&, mode = mode] { return steps_in(mode) > 0; });
    group_.lead().ExpectTokensOfOneAlone(&alone_);
    EXPECT_EQ(steps_in("sp") > 0, base_tp == 1) << "no other base than the ordered one";
    group_.Release(Switch::kSequential);
  }
  EXPECT_GT(steps_in("tp"), 0u);
  for (const auto& worker : group_.workers()) {
    EXPECT_EQ(worker->GroupSteps(), group_.lead().GroupSteps());
    EXPECT_TRUE(worker->shell().CheckInvariants().ok());
    BoundWorkers::AwaitThat([&] { return worker->Look().blocks.free == kBlocks; });
  }
}

INSTANTIATE_TEST_SUITE_P(OfSize, GroupOfFourTest, ::testing::Values(4));

}  // namespace
}  // namespace skein::services
