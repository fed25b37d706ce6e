#include "scheduler/orchestrator/explain/switch_notes.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace skein::scheduler::orchestrator {
namespace {

using Names = std::vector<std::string>;

class SwitchNotesTest : public ::testing::Test {
 protected:
  static SwitchEnded Report(uint64_t epoch, std::vector<InstanceId> members, bool binds,
                            OwnSequences own = OwnSequences::kShare) {
    const auto size = static_cast<int32_t>(members.size());
    return {.epoch = epoch,
            .members = std::move(members),
            .from = binds ? 1 : size,
            .to = binds ? size : 1,
            .own = own,
            .why = "why"};
  }
  void Begin(const SwitchEnded& report, bool hard = false) {
    notes_.Note(report, {.cause = SwitchCause::kLoad, .began_us = ++now_, .hard = hard});
  }
  void End(SwitchEnded report, SwitchOutcome outcome = SwitchOutcome::kDone) {
    report.outcome = outcome;
    notes_.NoteEnded(report, SwitchCause::kFailure, ++now_);
  }
  void Do(const SwitchEnded& report, bool hard = false) {
    Begin(report, hard);
    End(report);
  }
  // A plan of which the instance takes the blocks now; of the bound group `formation`, if not 0.
  PlanExplanation Placed(InstanceId at, uint64_t formation = 0) const {
    PlanExplanation plan;
    plan.decode = at;
    plan.formation_epoch = formation;
    plan.switches_from = notes_.NextOf(at);
    return plan;
  }
  PlanExplanation Told(PlanExplanation plan, TimeUs decided_us = 0) const {
    notes_.Tell(decided_us, &plan);
    TellMeanings(&plan);
    return plan;
  }
  // The meaning of each switch, with the epoch.
  Names Meanings(const PlanExplanation& plan) const {
    const std::vector<SwitchExplanation> switches = Told(plan).switches;
    Names names;
    names.reserve(switches.size());
    for (const SwitchExplanation& one : switches) {
      names.push_back(std::to_string(one.epoch) + " " + NameOf(one.meaning));
    }
    return names;
  }
  void TearDown() override {
    EXPECT_TRUE(notes_.CheckInvariants().ok()) << notes_.CheckInvariants();
  }

  const std::vector<InstanceId> pair_ = {{1}, {2}};
  SwitchNotes notes_;
  TimeUs now_ = 0;
};

TEST_F(SwitchNotesTest, ARequestIsToldOfWhatIsSwitchedWhileItIsThere) {
  Do(Report(5, pair_, true));
  Do(Report(5, pair_, false));  // ends at 4
  const PlanExplanation plan = Placed({2});
  EXPECT_TRUE(Told(plan).switches.empty()) << "they ended before it came";
  Begin(Report(6, pair_, true));  // at 5
  const PlanExplanation told = Told(plan, /*decided_us=*/3);
  ASSERT_EQ(told.switches.size(), 1u);
  EXPECT_EQ(told.switches[0].epoch, 6u);
  EXPECT_EQ(told.switches[0].from, 1);
  EXPECT_EQ(told.switches[0].to, 2);
  EXPECT_EQ(told.switches[0].began_us, 2);
  EXPECT_FALSE(told.switches[0].ended_us.has_value());
  EXPECT_EQ(told.switches[0].cause, SwitchCause::kLoad);
  EXPECT_EQ(told.switches[0].why, "why");
  End(Report(6, pair_, true));
  EXPECT_EQ(Told(plan, 3).switches.at(0).ended_us, 3);
  EXPECT_EQ(Told(plan).switches.at(0).outcome, SwitchOutcome::kDone);
  EXPECT_TRUE(Told(Placed({1})).switches.empty());
  EXPECT_TRUE(Told(Placed({3})).switches.empty()) << "another instance's group";
}

TEST_F(SwitchNotesTest, WhatIsUnderWayWhenItComesIsTold) {
  Begin(Report(5, pair_, true));
  const PlanExplanation plan = Placed({1});
  End(Report(5, pair_, true), SwitchOutcome::kAborted);
  EXPECT_EQ(Told(plan, /*decided_us=*/10).switches.at(0).began_us, -9) << "before its decision";
  EXPECT_EQ(Told(plan).switches[0].outcome, SwitchOutcome::kAborted);
}

// Such as a group that fails, and of which no member is left to tell.
TEST_F(SwitchNotesTest, WhatEndsUnseenIsNotedThen) {
  const PlanExplanation plan = Placed({2});
  SwitchEnded ended = Report(5, pair_, false);
  ended.took_us = 1;
  now_ = 9;
  End(ended, SwitchOutcome::kFailed);
  ASSERT_EQ(Told(plan).switches.size(), 1u);
  EXPECT_EQ(Told(plan).switches[0].began_us, 9);
  EXPECT_EQ(Told(plan).switches[0].ended_us, 10);
  EXPECT_EQ(Told(plan).switches[0].cause, SwitchCause::kFailure);
}

TEST_F(SwitchNotesTest, KeepsTheLatestAndCountsTheOthers) {
  const PlanExplanation plan = Placed({1});
  for (uint64_t epoch = 1; epoch <= SwitchNotes::kKept; ++epoch) {
    Do(Report(epoch, pair_, true));
    Do(Report(epoch, pair_, false));
    EXPECT_TRUE(notes_.CheckInvariants().ok()) << notes_.CheckInvariants();
  }
  const PlanExplanation told = Told(plan);
  EXPECT_EQ(told.switches.size(), SwitchNotes::kKept);
  EXPECT_EQ(told.switches_left_out, SwitchNotes::kKept);
  EXPECT_EQ(told.switches.front().epoch, SwitchNotes::kKept / 2 + 1);
  EXPECT_EQ(told.switches.back().to, 1);
  EXPECT_EQ(Told(Placed({1})).switches_left_out, 0u);
}

TEST_F(SwitchNotesTest, MeansByTheWayOfTheBindHowItsOwnSequencesFare) {
  const auto meanings = [&](OwnSequences own, InstanceId at) {
    SwitchNotes fresh;
    std::swap(notes_, fresh);
    const PlanExplanation plan = Placed(at);
    Do(Report(5, pair_, true, own));
    Do(Report(5, pair_, false, own), /*hard=*/true);
    return Meanings(plan);
  };
  EXPECT_EQ(meanings(OwnSequences::kShare, {1}), (Names{"5 alone", "5 alone"}));
  EXPECT_EQ(meanings(OwnSequences::kHardPreempt, {1}), (Names{"5 paused", "5 alone"}));
  EXPECT_EQ(meanings(OwnSequences::kHardPreempt, {2}), (Names{"5 paused", "5 alone"}));
  EXPECT_EQ(meanings(OwnSequences::kSoftPreempt, {1}), (Names{"5 taken_in", "5 taken_back"}));
  EXPECT_EQ(meanings(OwnSequences::kSoftPreempt, {2}), (Names{"5 taken_in", "5 taken_back"}));
}

TEST_F(SwitchNotesTest, ABindThatIsNotDoneChangesNothing) {
  const PlanExplanation plan = Placed({1});
  Begin(Report(5, pair_, true, OwnSequences::kHardPreempt));
  EXPECT_EQ(Meanings(plan), (Names{"5 alone"}));
  End(Report(5, pair_, true, OwnSequences::kHardPreempt), SwitchOutcome::kAborted);
  EXPECT_EQ(Meanings(plan), (Names{"5 alone"}));
}

TEST_F(SwitchNotesTest, AReleaseLetsTheGroupGoOnOrTakesBack) {
  Do(Report(5, pair_, true));
  const PlanExplanation plan = Placed({1}, /*formation=*/5);
  PlanExplanation staged = plan;  // its KV came to the lead alone
  staged.handoffs.resize(1);
  staged.handoffs[0].path.staging_buffer = true;
  Begin(Report(5, pair_, false));
  EXPECT_EQ(Meanings(plan), (Names{"5 in_group"}));
  EXPECT_EQ(Meanings(staged), (Names{"5 alone"}));
  Begin(Report(5, pair_, false), /*hard=*/true);  // hastened
  EXPECT_EQ(Meanings(plan), (Names{"5 taken_back"}));
  EXPECT_EQ(Told(plan).switches.size(), 1u) << "the same switch";
  End(Report(5, pair_, false));
  Do(Report(6, pair_, true));
  EXPECT_EQ(Meanings(plan), (Names{"5 taken_back", "6 alone"}));
}

TEST_F(SwitchNotesTest, AReleaseThatTakesTooLongTakesBack) {
  Do(Report(5, pair_, true));
  const PlanExplanation plan = Placed({1}, /*formation=*/5);
  Begin(Report(5, pair_, false));
  End(Report(5, pair_, false), SwitchOutcome::kForced);
  EXPECT_EQ(Meanings(plan), (Names{"5 taken_back"}));
}

// The bind was told, but is not kept: that the group had taken the request in follows.
TEST_F(SwitchNotesTest, WhatWasTakenInStaysSoWhenTheBindIsLeftOut) {
  const PlanExplanation plan = Placed({1});
  for (uint64_t epoch = 1; epoch <= SwitchNotes::kKept; ++epoch) {
    Do(Report(epoch, pair_, true, OwnSequences::kSoftPreempt));
    if (epoch == SwitchNotes::kKept) Begin(Report(epoch, pair_, false, OwnSequences::kSoftPreempt));
    if (epoch < SwitchNotes::kKept) {
      Do(Report(epoch, pair_, false, OwnSequences::kSoftPreempt), /*hard=*/true);
    }
  }
  EXPECT_EQ(Meanings(plan).front(), "5 taken_in");
  Do(Report(99, pair_, true, OwnSequences::kSoftPreempt));
  EXPECT_EQ(Meanings(plan).front(), "5 taken_back");
}

TEST_F(SwitchNotesTest, RequestsAreLostWithTheirInstance) {
  Do(Report(5, pair_, true));
  const PlanExplanation at_lead = Placed({1}, /*formation=*/5), at_member = Placed({2});
  notes_.Leaves({1}, ++now_);
  Begin(Report(5, pair_, false), /*hard=*/true);
  EXPECT_EQ(Meanings(at_lead), (Names{"5 lost"}));
  EXPECT_EQ(Meanings(at_member), (Names{"5 alone"}));
  EXPECT_EQ(notes_.instances(), pair_);
  notes_.Forget({1});
  EXPECT_EQ(notes_.instances(), (std::vector<InstanceId>{{2}}));
  End(Report(5, pair_, false), SwitchOutcome::kFailed);
  EXPECT_EQ(notes_.instances(), (std::vector<InstanceId>{{2}})) << "nothing comes back";
  EXPECT_EQ(Told(at_member).switches.at(0).outcome, SwitchOutcome::kFailed);
}

// What was told before an instance was forgotten stays.
TEST_F(SwitchNotesTest, WhatWasToldStays) {
  PlanExplanation plan = Placed({1});
  Do(Report(5, pair_, true));
  notes_.Tell(0, &plan);
  notes_.Forget({1});
  notes_.Tell(0, &plan);
  EXPECT_EQ(plan.switches.size(), 1u);
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
