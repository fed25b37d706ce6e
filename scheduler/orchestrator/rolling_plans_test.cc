// OrchestratorCore under the policy rolling: a plan grows chunk by chunk.
#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

class RollingPlansTest : public PlanningTest {
 protected:
  RollingPlansTest() : PlanningTest("rolling") {
    prefill_ = UpPrefill(4);
    decode_ = Up(Role::kDecode, 2);
  }

  std::vector<InstanceId> prefill_;
  InstanceId decode_;
};

TEST_F(RollingPlansTest, AnIdleClusterStartsAtOnceAndAChunkEndsWhenAllMembersSaySo) {
  const auto assigns = Place(1, 8000);
  ASSERT_GE(assigns.size(), 2u);
  EXPECT_EQ(assigns[0].request.chunks.size(), 1u);
  EXPECT_EQ(assigns[0].request.chunks[0].tokens, 8000);
  for (size_t i = 0; i < assigns.size(); ++i) {
    Report(assigns[i].instance, {}, {Ended(assigns[i])});
  }
  EXPECT_EQ(core_->Explain("cmpl-1", now_)[0].prefilled_us, 0);
  EXPECT_EQ(Ends(Report(decode_, {}, {Ended(assigns[0])})).size(), 1u);
}

TEST_F(RollingPlansTest, WhatDoesNotFitWaitsHereAndIsStartedWhenAChunkEnds) {
  std::vector<std::vector<CallAssign>> running;
  uint64_t serial = 0;
  while (core_->Snapshot(now_).planning == 0 && serial < 20) {
    const Effects effects = Submit(++serial, 4000);
    const auto assigns = Of<CallAssign>(effects);
    if (!assigns.empty()) running.push_back(assigns);
    // Its router hears at once that it is not refused, with its plan or before.
    ASSERT_EQ(Of<SendPlanUpdate>(effects).size(), 1u);
    EXPECT_EQ(std::holds_alternative<Accepted>(Of<SendPlanUpdate>(effects)[0].update),
              assigns.empty());
  }
  ASSERT_LE(serial, 5u);
  EXPECT_EQ(core_->Explain("7/" + std::to_string(serial), now_)[0].state,
            "waiting for its instances");
  Placed(running[0]);
  now_ += 4 * kSecondUs - 2 * kSecondUs;
  Effects ended;
  for (const CallAssign& assign : running[0]) {
    ended = Report(assign.instance, {}, {Ended(assign)});
  }
  const auto started = Of<CallAssign>(ended);
  ASSERT_FALSE(started.empty());
  EXPECT_EQ(started[0].request.spec->id, (RequestId{7, serial}));
  EXPECT_GT(started[0].request.sequence, running.back()[0].request.sequence);
}

// Two of four instances are busy for a while: a long prompt begins on two and goes on with four.
TEST_F(RollingPlansTest, AChunkAfterTheFirstIsOneMoreAssignToAllItsMembers) {
  Make("rolling");
  incarnations_.clear();
  UpPrefill(2);
  decode_ = Up(Role::kDecode, 2);
  const auto before = Place(100, 8000);
  ASSERT_EQ(before.size(), 2u);
  UpPrefill(2);
  const auto first = Place(1, 40000);
  ASSERT_EQ(first.size(), 2u);
  ASSERT_EQ(first[0].request.chunks.size(), 1u);
  const int64_t tokens = first[0].request.chunks[0].tokens;
  EXPECT_NEAR(static_cast<double>(tokens), 8000, 10);
  EXPECT_EQ(tokens % kTestBlockTokens, 0);
  for (int i = 0; i < 2; ++i) {
    now_ += 2200 * kMillisecondUs;
    for (const CallAssign& assign : first) Report(assign.instance, {Held(assign)});
    for (const CallAssign& assign : before) Report(assign.instance, {Held(assign)});
    Report(decode_, {Held(first[0]), Held(before[0])});
  }
  for (const CallAssign& assign : before) Report(assign.instance, {}, {Ended(assign)});
  EXPECT_TRUE(Of<CallAssign>(Report(first[0].instance, {Held(first[0], 1)})).empty());
  // Two members are new: the decode instance hears of them at the same time.
  const Effects ended = Report(first[1].instance, {Held(first[1], 1)});
  const auto naming = Of<CallAnnounce>(ended);
  ASSERT_EQ(naming.size(), 1u);
  EXPECT_EQ(naming[0].request.epoch, first[0].request.epoch);
  EXPECT_EQ(naming[0].request.writers.size(), 4u);
  const auto second = Of<CallAssign>(ended);
  ASSERT_EQ(second.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const AssignOrder& request = second[i].request;
    EXPECT_EQ(request.epoch, first[0].request.epoch);
    EXPECT_GT(request.sequence, first[0].request.sequence);
    EXPECT_EQ(request.from_chunk, 1u);
    ASSERT_EQ(request.chunks.size(), 2u);
    EXPECT_EQ(request.chunks[0].tokens, tokens);
    EXPECT_EQ(request.chunks[0].members, (std::vector<uint32_t>{0, 1}));
    EXPECT_EQ(request.chunks[0].tokens + request.chunks[1].tokens, 40000);
    EXPECT_EQ(request.chunks[1].members, (std::vector<uint32_t>{0, 1, 2, 3}));
    EXPECT_EQ(request.members[0].instance, first[0].instance);
    EXPECT_EQ(request.members[1].instance, first[1].instance);
    EXPECT_EQ(request.placed.has_value(), i >= 2);  // who joins knows where the KV goes
    const auto starts = Of<CallStart>(Answer(second[i]));
    EXPECT_EQ(starts.size(), i < 3 ? 0u : 4u) << "once all have the last chunk";
  }
  EXPECT_EQ(core_->Explain("cmpl-1", now_)[0].plans[0].chunks.size(), 2u);
  for (const CallAssign& assign : second) Report(assign.instance, {}, {Ended(assign)});
  EXPECT_GE(core_->Explain("cmpl-1", now_)[0].prefilled_us, 0);
}

TEST_F(RollingPlansTest, ARefusedChunkPlansTheRequestAnew) {
  const auto assigns = Of<CallAssign>(Submit(1, 8000));
  ASSERT_EQ(assigns.size(), 4u);
  Effects effects = Answer(assigns[1], absl::ResourceExhaustedError("full"));
  EXPECT_TRUE(Of<CallAssign>(effects).empty());
  for (const CallAssign& assign : assigns) {
    effects = Answer(assign, absl::UnavailableError("cancelled before it came"));
  }
  const auto again = Of<CallAssign>(effects);
  ASSERT_FALSE(again.empty());
  for (const CallAssign& assign : again) EXPECT_NE(assign.instance, assigns[1].instance);
}

TEST_F(RollingPlansTest, ACancelledRequestFreesItsInstancesForTheNext) {
  Place(1, 40000);
  const auto queued = Submit(2, 40000);
  EXPECT_TRUE(Of<CallAssign>(queued).empty());
  EXPECT_FALSE(Of<CallAssign>(Do(Closed({7, 1}))).empty());
  Submit(3, 40000);
  EXPECT_TRUE(Do(Closed({7, 3})).empty());  // it was on no instance
}

TEST_F(RollingPlansTest, APoolThatIsGoneFailsWhatWaits) {
  Place(1, 40000);
  Submit(2, 40000);
  Effects effects;
  for (const InstanceId id : prefill_) {
    const Effects some = Do(UnregisterCalled{Call(), {id, incarnations_[id]}});
    effects.insert(effects.end(), some.begin(), some.end());
  }
  EXPECT_EQ(Updates<Failed>(effects).size(), 2u);
}

TEST_F(RollingPlansTest, InstancesComeAndGoUnderIt) {
  Place(1, 40000);
  Submit(2, 4000);
  const InstanceId fifth = Up(Role::kPrefill, 300, "b");  // request 2 need not wait
  EXPECT_EQ(core_->Snapshot(now_).planning, 0);
  Do(UnregisterCalled{Call(), {fifth, incarnations_[fifth]}});
  EXPECT_EQ(core_->Snapshot(now_).planning, 1);
  // Request 1 waits until it has ended at the other three, which request 2 takes.
  const auto gone = Do(UnregisterCalled{Call(), {prefill_[0], incarnations_[prefill_[0]]}});
  EXPECT_FALSE(Of<CallAssign>(gone).empty());
  EXPECT_EQ(Of<CallAssign>(gone)[0].request.spec->id, (RequestId{7, 2}));
  EXPECT_EQ(core_->Snapshot(now_).planning, 1);
}

TEST_F(RollingPlansTest, ItsTableIsReplacedWhileRunning) {
  const auto members = [this](uint64_t serial) {
    const size_t count = Of<CallAssign>(Submit(serial, 4000)).size();
    Do(Closed({7, serial}));
    return count;
  };
  EXPECT_EQ(members(1), 4u);
  RollingTuning tuning;
  tuning.commit = {CommitMode::Kind::kFixed, 0, 3};  // the profile has no SP 3: not taken
  Do(ReplacePlanningTables{{.rolling = RollingTable::Constant(tuning)}});
  EXPECT_EQ(members(2), 4u);
  tuning.commit = {CommitMode::Kind::kFixed, 0, 2};
  Do(ReplacePlanningTables{{.rolling = RollingTable::Constant(tuning)}});
  EXPECT_EQ(members(3), 2u);
}

// As the simulator's planner: the table's row for the load that arrives, from the next pick on.
TEST_F(RollingPlansTest, IsTunedByTheTableAsTheLoadGrows) {
  RollingTuning fixed;
  fixed.commit = {CommitMode::Kind::kFixed, 0, 2};
  RollingTuning single;
  single.commit = {CommitMode::Kind::kSingle, 0.9, 0};
  Make("rolling", 0, *RollingTable::Make({{0.1, fixed}, {2, single}}));
  incarnations_.clear();
  UpPrefill(4);
  decode_ = Up(Role::kDecode, 2);
  const auto finish = [&](const std::vector<CallAssign>& assigns) {
    for (const CallAssign& assign : assigns) Report(assign.instance, {}, {Ended(assign)});
    Report(decode_, {}, {Ended(assigns[0])});
  };
  const auto calm = Place(1, 4000);
  EXPECT_EQ(calm.size(), 2u);
  finish(calm);
  for (uint64_t serial = 2; serial < 70; ++serial) {
    now_ += kSecondUs / 2;
    const auto busy = Place(serial, 100);
    EXPECT_EQ(busy.size(), serial < 61 ? 2u : 1u) << serial;
    finish(busy);
  }
}

}  // namespace
}  // namespace skein::scheduler
