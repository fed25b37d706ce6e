#include "scheduler/orchestrator/groups/formation_switch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace skein::scheduler::orchestrator {
namespace {

using Lines = std::vector<std::string>;
using Phase = FormationTold::Phase;
using Stage = FormationSwitch::Stage;

constexpr uint64_t kFirst = 100;
constexpr FormationLimits kLimits = {
    .prepare_us = 10'000, .commit_us = 20'000, .release_us = 500'000, .end_us = 30'000};

std::string Text(const SwitchEnded& ended) {
  std::string text = absl::StrCat("ended ", ended.epoch, " ", FormationName(ended.from), " to ",
                                  FormationName(ended.to), " ", std::string(NameOf(ended.outcome)));
  if (!ended.reason.empty()) absl::StrAppend(&text, ": ", ended.reason);
  for (const InstanceId id : ended.unanswered) absl::StrAppend(&text, ", not by ", id.value);
  return text;
}

std::string Text(const SwitchEffect& effect) {
  if (const auto* prepare = std::get_if<SendPrepare>(&effect)) {
    const PrepareFormation& order = prepare->order;
    return absl::StrCat("prepare ", prepare->to.value, ": ", order.epoch, " g", order.generation,
                        " ", order.first, "+", order.size);
  }
  if (const auto* commit = std::get_if<SendCommit>(&effect)) {
    return absl::StrCat("commit ", commit->to.value, ": ", commit->order.epoch);
  }
  if (const auto* end = std::get_if<SendEnd>(&effect)) {
    return absl::StrCat("end ", end->to.value, ": ", end->order.epoch,
                        end->order.how == Switch::kHard ? " hard" : " sequential");
  }
  return Text(std::get<SwitchEnded>(effect));
}

class FormationSwitchTest : public ::testing::Test {
 protected:
  FormationSwitchTest() {
    epochs_.BeginAt(kFirst);
    Regroup(1, {1, 2, 3, 4});
    Took();
  }

  static GroupOrder OrderOf(uint64_t generation, const std::vector<uint64_t>& instances) {
    GroupOrder order = {.generation = generation};
    for (const uint64_t id : instances) order.members.push_back({{id}, ""});
    return order;
  }
  void Regroup(uint64_t generation, const std::vector<uint64_t>& instances) {
    switch_.Regrouped(OrderOf(generation, instances), now_, &effects_);
  }
  absl::StatusOr<uint64_t> Bind(int32_t first, int32_t size) {
    return switch_.Bind({first, size}, "asked", now_, &effects_);
  }
  absl::Status Release(uint64_t id, Switch how) {
    return switch_.Release({id}, how, "asked", now_, &effects_);
  }
  void Tell(uint64_t id, uint64_t epoch, Phase phase, const char* why = "why") {
    const bool ended = phase == Phase::kEnded;
    switch_.Take({id},
                 {epoch, phase, ended ? absl::UnavailableError(why) : absl::OkStatus(),
                  phase == Phase::kBound ? TimeUs(1000 * id) : 0, ended ? TimeUs(7000 * id) : 0},
                 now_, &effects_);
  }
  void Reconnect(uint64_t id, const std::optional<FormationTold>& latest) {
    switch_.Reconnected({id}, latest, now_, &effects_);
  }
  Lines TickAfter(TimeUs later) {
    now_ += later;
    switch_.Tick(now_, &effects_);
    return Took();
  }
  // What was wanted since the last time.
  Lines Took() {
    EXPECT_TRUE(switch_.CheckInvariants().ok()) << switch_.CheckInvariants();
    Lines lines;
    for (const SwitchEffect& effect : effects_) {
      lines.push_back(Text(effect));
      if (const auto* ended = std::get_if<SwitchEnded>(&effect)) last_ = *ended;
    }
    effects_.clear();
    return lines;
  }
  // Members 1 and 2 are bound under epoch kFirst.
  void BindTwo() {
    ASSERT_TRUE(Bind(0, 2).ok());
    for (const Phase phase : {Phase::kPrepared, Phase::kBound}) {
      for (const uint64_t id : {1, 2}) Tell(id, kFirst, phase);
    }
    Took();
  }

  TimeUs now_ = 1'000'000;
  FormationEpochs epochs_;
  FormationSwitch switch_{kLimits, &epochs_};
  SwitchEffects effects_;
  SwitchEnded last_;
};

TEST_F(FormationSwitchTest, BindsInTwoPhases) {
  EXPECT_EQ(*Bind(2, 2), kFirst);
  EXPECT_EQ(Took(), (Lines{"prepare 3: 100 g1 2+2", "prepare 4: 100 g1 2+2"}));
  Tell(4, kFirst, Phase::kPrepared);
  Tell(4, kFirst, Phase::kPrepared);
  EXPECT_EQ(Took(), Lines{});
  now_ += 5'000;
  Tell(3, kFirst, Phase::kPrepared);
  EXPECT_EQ(Took(), Lines{"commit 3: 100"});
  Tell(4, kFirst, Phase::kBound);
  EXPECT_EQ(Took(), Lines{});
  now_ += 6'000;
  Tell(3, kFirst, Phase::kBound);
  EXPECT_EQ(Took(), Lines{"ended 100 independent to bound(2) done"});
  EXPECT_EQ(last_.took_us, 11'000);
  EXPECT_EQ(last_.cut_over_us, 4'000);
  EXPECT_EQ(last_.why, "asked");
  EXPECT_EQ(last_.members, (std::vector<InstanceId>{{3}, {4}}));
  EXPECT_EQ(switch_.NextDeadline(), kNever);
  const FormationSwitch::Live* live = switch_.LiveOf({4});
  ASSERT_NE(live, nullptr);
  EXPECT_EQ(live->stage, Stage::kBound);
  EXPECT_EQ(live->since_us, now_);
  EXPECT_EQ(live->why, "asked");
  EXPECT_EQ(switch_.LiveOf({1}), nullptr);
}

TEST_F(FormationSwitchTest, PreparedIsKeptForBothDeadlines) {
  ASSERT_TRUE(Bind(0, 2).ok());
  EXPECT_EQ(std::get<SendPrepare>(effects_.front()).order.keep_us,
            kLimits.prepare_us + kLimits.commit_us);
}

TEST_F(FormationSwitchTest, ThePauseOfOwnSequencesIsPartOfTheOrder) {
  FormationLimits limits = kLimits;
  limits.own_pause_us = 7 * kSecondUs;
  FormationSwitch other(limits, &epochs_);
  other.Regrouped(switch_.order(), now_, &effects_);
  ASSERT_TRUE(other.Bind({0, 2}, "asked", now_, &effects_).ok());
  EXPECT_EQ(std::get<SendPrepare>(effects_.front()).order.own_pause_us, 7 * kSecondUs);
}

// They have as long for it as bound sequences have before a release.
TEST_F(FormationSwitchTest, OwnSequencesAreGivenTimeToEndWhereTheyAreTo) {
  using Own = OwnSequences;
  for (const Own own : {Own::kShare, Own::kSequential, Own::kSoftPreempt, Own::kHardPreempt}) {
    SCOPED_TRACE(ToString(own));
    const bool waits = own == Own::kSequential || own == Own::kSoftPreempt;
    const TimeUs prepare_us = kLimits.prepare_us + (waits ? kLimits.release_us : 0);
    const auto epoch = switch_.Bind({0, 2}, "asked", now_, &effects_, own);
    ASSERT_TRUE(epoch.ok());
    for (const SwitchEffect& effect : effects_) {
      EXPECT_EQ(std::get<SendPrepare>(effect).order.own, own);
      EXPECT_EQ(std::get<SendPrepare>(effect).order.keep_us, prepare_us + kLimits.commit_us);
    }
    EXPECT_EQ(switch_.NextDeadline(), now_ + prepare_us);
    Tell(1, *epoch, Phase::kPrepared);
    EXPECT_EQ(Took().size(), 2u);
    EXPECT_EQ(TickAfter(prepare_us).size(), 2u) << "both are told to end it";
    for (const uint64_t id : {1, 2}) Tell(id, *epoch, Phase::kEnded);
    Took();
    EXPECT_EQ(last_.own, own);
    EXPECT_EQ(last_.outcome, SwitchOutcome::kAborted);
  }
}

TEST_F(FormationSwitchTest, ABindTellsTheLongestThatAnInstanceWaitedForItsOwn) {
  const auto epoch = switch_.Bind({0, 2}, "asked", now_, &effects_, OwnSequences::kSequential);
  ASSERT_TRUE(epoch.ok());
  for (const auto& [id, drain_us] : {std::pair<uint64_t, TimeUs>{1, 9'000}, {2, 4'000}}) {
    const FormationTold told = {.epoch = *epoch, .phase = Phase::kPrepared, .drain_us = drain_us};
    switch_.Take({id}, told, now_, &effects_);
  }
  for (const uint64_t id : {1, 2}) Tell(id, *epoch, Phase::kBound);
  Took();
  EXPECT_EQ(last_.outcome, SwitchOutcome::kDone);
  EXPECT_EQ(last_.drain_us, 9'000);
  ASSERT_TRUE(Release(1, Switch::kHard).ok());
  for (const uint64_t id : {1, 2}) Tell(id, *epoch, Phase::kEnded);
  Took();
  EXPECT_EQ(last_.drain_us, 14'000) << "of the release alone";
}

TEST_F(FormationSwitchTest, AReleaseTellsHowTheGroupWasBound) {
  const auto epoch = switch_.Bind({0, 2}, "asked", now_, &effects_, OwnSequences::kHardPreempt);
  for (const Phase phase : {Phase::kPrepared, Phase::kBound}) {
    for (const uint64_t id : {1, 2}) Tell(id, *epoch, phase);
  }
  Took();
  ASSERT_TRUE(Release(1, Switch::kHard).ok());
  for (const uint64_t id : {1, 2}) Tell(id, *epoch, Phase::kEnded);
  Took();
  EXPECT_EQ(last_.to, 1);
  EXPECT_EQ(last_.own, OwnSequences::kHardPreempt);
}

TEST_F(FormationSwitchTest, ReleasesThroughTheLead) {
  BindTwo();
  ASSERT_TRUE(Release(2, Switch::kSequential).ok());
  EXPECT_EQ(Took(), Lines{"end 1: 100 sequential"});
  now_ += 400'000;
  Tell(1, kFirst, Phase::kEnded);
  EXPECT_EQ(Took(), Lines{});
  EXPECT_EQ(switch_.NextDeadline(), now_ + kLimits.end_us);  // the other follows
  Tell(2, kFirst, Phase::kEnded);
  EXPECT_EQ(Took(), Lines{"ended 100 bound(2) to independent done"});
  EXPECT_EQ(last_.drain_us, 14'000);
  EXPECT_EQ(last_.cut_over_us, 0);
  EXPECT_EQ(last_.took_us, 400'000);
  EXPECT_TRUE(switch_.live().empty());
  EXPECT_EQ(*Bind(0, 2), kFirst + 1);
}

TEST_F(FormationSwitchTest, AReleaseCanBeHastenedOnce) {
  BindTwo();
  ASSERT_TRUE(Release(1, Switch::kSequential).ok());
  EXPECT_EQ(Release(1, Switch::kSequential).message(),
            "instance 1 is being released (bound(2), epoch 100)");
  ASSERT_TRUE(Release(2, Switch::kHard).ok());
  EXPECT_EQ(Took(), (Lines{"end 1: 100 sequential", "end 1: 100 hard"}));
  EXPECT_EQ(switch_.NextDeadline(), now_ + kLimits.end_us);
  EXPECT_EQ(Release(1, Switch::kHard).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(FormationSwitchTest, AReleaseThatTakesTooLongIsForcedEverywhere) {
  BindTwo();
  ASSERT_TRUE(Release(1, Switch::kSequential).ok());
  Took();
  EXPECT_EQ(TickAfter(kLimits.release_us - 1), Lines{});
  EXPECT_EQ(TickAfter(1), (Lines{"end 1: 100 hard", "end 2: 100 hard"}));
  Tell(1, kFirst, Phase::kEnded);
  Tell(2, kFirst, Phase::kEnded);
  EXPECT_EQ(Took(), Lines{"ended 100 bound(2) to independent forced: instances 1, 2 did not end "
                          "the group within 500 ms"});
}

TEST_F(FormationSwitchTest, WhoNeverEndsIsAStrayUntilItDoes) {
  BindTwo();
  ASSERT_TRUE(Release(1, Switch::kHard).ok());
  Took();
  TickAfter(kLimits.end_us);
  Tell(1, kFirst, Phase::kEnded);
  EXPECT_EQ(TickAfter(kLimits.end_us),
            Lines{"ended 100 bound(2) to independent forced: instances 1, 2 did not end the group "
                  "within 30 ms, not by 2"});
  EXPECT_EQ(Bind(0, 4).status().message(),
            "cannot make bound(4): instance 2 has not told the end of epoch 100");
  EXPECT_EQ(TickAfter(kLimits.end_us), Lines{"end 2: 100 hard"});
  EXPECT_EQ(switch_.NextDeadline(), now_ + kLimits.end_us);
  Tell(2, kFirst, Phase::kEnded);
  EXPECT_EQ(switch_.NextDeadline(), kNever);
  EXPECT_TRUE(Bind(0, 4).ok());
}

TEST_F(FormationSwitchTest, ARefusalAbortsForAll) {
  ASSERT_TRUE(Bind(0, 4).ok());
  Tell(1, kFirst, Phase::kPrepared);
  Took();
  Tell(3, kFirst, Phase::kEnded, "it drains");
  EXPECT_EQ(Took(), (Lines{"end 1: 100 hard", "end 2: 100 hard", "end 4: 100 hard"}));
  Tell(2, kFirst, Phase::kPrepared);  // it was on its way
  for (const uint64_t id : {1, 2, 4}) Tell(id, kFirst, Phase::kEnded);
  EXPECT_EQ(Took(),
            Lines{"ended 100 independent to bound(4) aborted: instance 3 ended it: it drains"});
  EXPECT_TRUE(switch_.live().empty());
}

TEST_F(FormationSwitchTest, TooLatePreparedAborts) {
  ASSERT_TRUE(Bind(0, 2).ok());
  Tell(1, kFirst, Phase::kPrepared);
  Took();
  EXPECT_EQ(TickAfter(kLimits.prepare_us), (Lines{"end 1: 100 hard", "end 2: 100 hard"}));
  Tell(1, kFirst, Phase::kEnded);
  Tell(2, kFirst, Phase::kPrepared);
  EXPECT_EQ(Took(), Lines{});
  Tell(2, kFirst, Phase::kEnded);
  EXPECT_EQ(Took(), Lines{"ended 100 independent to bound(2) aborted: instance 2 did not prepare "
                          "within 10 ms"});
}

TEST_F(FormationSwitchTest, TooLateBoundAborts) {
  ASSERT_TRUE(Bind(0, 2).ok());
  for (const uint64_t id : {1, 2}) Tell(id, kFirst, Phase::kPrepared);
  Tell(2, kFirst, Phase::kBound);
  Took();
  EXPECT_EQ(TickAfter(kLimits.commit_us), (Lines{"end 1: 100 hard", "end 2: 100 hard"}));
  for (const uint64_t id : {1, 2}) Tell(id, kFirst, Phase::kEnded);
  EXPECT_EQ(Took(), Lines{"ended 100 independent to bound(2) aborted: instance 1 was not bound "
                          "within 20 ms"});
}

TEST_F(FormationSwitchTest, ReleasingABindAbortsIt) {
  ASSERT_TRUE(Bind(0, 2).ok());
  ASSERT_TRUE(switch_.Release({2}, Switch::kSequential, "a burst", now_, &effects_).ok());
  for (const uint64_t id : {1, 2}) Tell(id, kFirst, Phase::kEnded);
  EXPECT_EQ(Took().back(), "ended 100 independent to bound(2) aborted: a burst");
}

TEST_F(FormationSwitchTest, ABoundGroupThatLosesAMemberIsEndedForAll) {
  BindTwo();
  switch_.Left({1}, now_, &effects_);  // the lead
  EXPECT_EQ(Took(), Lines{"end 2: 100 hard"});
  Tell(2, kFirst, Phase::kEnded);
  EXPECT_EQ(Took(), Lines{"ended 100 bound(2) to independent failed: instance 1 left"});
  EXPECT_EQ(Bind(0, 2).status().message(), "cannot make bound(2): instance 1 has left");
}

// It may live, so it is told, too; but nobody waits for its answer.
TEST_F(FormationSwitchTest, ABoundGroupWhoseMemberSaysNothingIsEndedForAll) {
  BindTwo();
  switch_.FellSilent({1}, now_, &effects_);  // the lead
  EXPECT_EQ(Took(), (Lines{"end 1: 100 hard", "end 2: 100 hard"}));
  switch_.FellSilent({1}, now_, &effects_);
  EXPECT_EQ(Took(), Lines{}) << "it was told";
  Tell(2, kFirst, Phase::kEnded);
  EXPECT_EQ(Took(), Lines{});
  EXPECT_EQ(switch_.LiveOf({2}), nullptr) << "it works alone";
  EXPECT_EQ(TickAfter(kLimits.end_us),
            Lines{"ended 100 bound(2) to independent failed: instance 1 says nothing, not by 1"});
  EXPECT_FALSE(Bind(0, 2).ok());
  Tell(1, kFirst, Phase::kEnded);
  EXPECT_TRUE(Bind(0, 2).ok()) << "it is back";
}

TEST_F(FormationSwitchTest, AMemberThatSaysNothingAbortsTheBind) {
  ASSERT_TRUE(Bind(0, 2).ok());
  switch_.FellSilent({2}, now_, &effects_);
  for (const uint64_t id : {1, 2}) Tell(id, kFirst, Phase::kEnded);
  EXPECT_EQ(Took().back(), "ended 100 independent to bound(2) aborted: instance 2 says nothing");
}

TEST_F(FormationSwitchTest, ABoundGroupThatEndsByItselfHasFailed) {
  BindTwo();
  Tell(2, kFirst, Phase::kEnded, "a step failed");
  EXPECT_EQ(Took(), Lines{"end 1: 100 hard"});
  Tell(1, kFirst, Phase::kEnded, "a step failed");
  EXPECT_EQ(Took(),
            Lines{"ended 100 bound(2) to independent failed: instance 2 ended it: a step failed"});
}

TEST_F(FormationSwitchTest, AMemberThatComesBackWithTheEpochGoesOn) {
  ASSERT_TRUE(Bind(0, 2).ok());
  Tell(1, kFirst, Phase::kPrepared);
  Took();
  Reconnect(2, FormationTold{kFirst, Phase::kPrepared});
  EXPECT_EQ(Took(), Lines{"commit 1: 100"});
  Tell(1, kFirst, Phase::kBound);
  Reconnect(2, FormationTold{kFirst, Phase::kBound});
  EXPECT_EQ(Took(), Lines{"ended 100 independent to bound(2) done"});
  Reconnect(1, FormationTold{kFirst, Phase::kBound});
  EXPECT_EQ(Took(), Lines{});
}

TEST_F(FormationSwitchTest, AMemberThatComesBackWithoutTheEpochEndsIt) {
  ASSERT_TRUE(Bind(0, 2).ok());
  Took();
  Reconnect(2, std::nullopt);
  EXPECT_EQ(Took(), Lines{"end 1: 100 hard"});
  Reconnect(1, FormationTold{kFirst - 50, Phase::kEnded});
  EXPECT_EQ(Took(), Lines{"ended 100 independent to bound(2) aborted: instance 2 came back without "
                          "epoch 100"});
}

TEST_F(FormationSwitchTest, TheOrderToCommitIsNotSentTwice) {
  ASSERT_TRUE(Bind(0, 2).ok());
  for (const uint64_t id : {1, 2}) Tell(id, kFirst, Phase::kPrepared);
  Took();
  Reconnect(2, FormationTold{kFirst, Phase::kPrepared});
  EXPECT_EQ(Took(), Lines{});
  Reconnect(1, FormationTold{kFirst, Phase::kPrepared});
  EXPECT_EQ(Took(), (Lines{"end 1: 100 hard", "end 2: 100 hard"}));
}

TEST_F(FormationSwitchTest, TheOrderToEndIsSentAgainAtAReconnect) {
  BindTwo();
  ASSERT_TRUE(Release(1, Switch::kSequential).ok());
  Took();
  Reconnect(2, FormationTold{kFirst, Phase::kBound});
  EXPECT_EQ(Took(), Lines{});
  Reconnect(1, FormationTold{kFirst, Phase::kBound});
  EXPECT_EQ(Took(), Lines{"end 1: 100 sequential"});
  TickAfter(kLimits.release_us);
  Reconnect(2, FormationTold{kFirst, Phase::kBound});
  EXPECT_EQ(Took(), Lines{"end 2: 100 hard"});
}

TEST_F(FormationSwitchTest, WhatIsNotKnownHereIsEndedKindlyThenHard) {
  Reconnect(3, FormationTold{7, Phase::kBound});
  EXPECT_EQ(Took(), Lines{"end 3: 7 sequential"});
  Tell(3, 7, Phase::kBound);
  EXPECT_EQ(Took(), Lines{});
  EXPECT_EQ(Bind(2, 2).status().message(),
            "cannot make bound(2): instance 3 has not told the end of epoch 7");
  EXPECT_EQ(TickAfter(kLimits.release_us), Lines{"end 3: 7 hard"});
  Tell(3, 7, Phase::kEnded);
  Tell(4, 8, Phase::kEnded);
  EXPECT_TRUE(Bind(2, 2).ok());
}

TEST_F(FormationSwitchTest, AStrayThatLeavesOrComesBackWithoutTheEpochIsNone) {
  Tell(3, 7, Phase::kPrepared);
  Tell(4, 7, Phase::kPrepared);
  EXPECT_EQ(Took(), (Lines{"end 3: 7 sequential", "end 4: 7 sequential"}));
  Reconnect(3, FormationTold{7, Phase::kEnded});
  switch_.Left({4}, now_, &effects_);
  EXPECT_TRUE(switch_.strays().empty());
}

TEST_F(FormationSwitchTest, RefusesWhatOverlapsAndNamesIt) {
  BindTwo();
  ASSERT_TRUE(Bind(2, 2).ok());
  Took();
  const absl::Status refused = Bind(0, 4).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(refused.message(),
            "cannot make bound(4): instance 1 is bound (bound(2), epoch 100); instance 2 is bound "
            "(bound(2), epoch 100); instance 3 is being bound (bound(2), epoch 101); instance 4 is "
            "being bound (bound(2), epoch 101)");
  EXPECT_EQ(Took(), Lines{});
}

TEST_F(FormationSwitchTest, RefusesWhatIsNoAlignedSubset) {
  for (const Subset& subset : {Subset{1, 2}, Subset{0, 3}, Subset{0, 1}, Subset{0, 0}, Subset{0, 8},
                               Subset{4, 2}, Subset{-2, 2}, Subset{0, -2}}) {
    EXPECT_EQ(Bind(subset.first, subset.size).status().code(), absl::StatusCode::kInvalidArgument)
        << subset.first << " " << subset.size;
  }
  EXPECT_EQ(Release(1, Switch::kHard).message(),
            "instance 1 works alone: there is nothing to release");
  FormationSwitch no_order(kLimits, &epochs_);
  EXPECT_EQ(no_order.Bind({0, 2}, "", now_, &effects_).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(FormationSwitchTest, AnotherOrderAbortsWhatIsBeingPreparedOnly) {
  BindTwo();
  ASSERT_TRUE(Bind(2, 2).ok());
  Took();
  Regroup(2, {2, 3, 4, 5});
  EXPECT_EQ(Took(), (Lines{"end 3: 101 hard", "end 4: 101 hard"}));
  for (const uint64_t id : {3, 4}) Tell(id, kFirst + 1, Phase::kEnded);
  EXPECT_EQ(Took(),
            Lines{"ended 101 independent to bound(2) aborted: the group has other members"});
  EXPECT_EQ(switch_.LiveOf({2})->stage, Stage::kBound);  // under the older order
  EXPECT_FALSE(Bind(0, 2).ok());                         // instances 2 and 3
  EXPECT_TRUE(Bind(2, 2).ok());
  EXPECT_EQ(Took(), (Lines{"prepare 4: 102 g2 2+2", "prepare 5: 102 g2 2+2"}));
  Regroup(1, {1, 2});
  EXPECT_EQ(switch_.order().generation, 2u);
}

TEST_F(FormationSwitchTest, AnotherOrderOfTheSameMembersIsToldAsOne) {
  ASSERT_TRUE(Bind(2, 2).ok());
  Took();
  Regroup(2, {1, 2, 3, 4});
  for (const uint64_t id : {3, 4}) Tell(id, kFirst, Phase::kEnded);
  EXPECT_EQ(Took().back(),
            "ended 100 independent to bound(2) aborted: the group makes new communicators");
}

TEST_F(FormationSwitchTest, EpochsAreAboveThoseOfAFormerGeneration) {
  ASSERT_EQ(*Bind(0, 2), kFirst);
  epochs_.BeginAt(1000);
  EXPECT_EQ(*Bind(2, 2), 1000u);
  epochs_.BeginAt(500);
  EXPECT_EQ(epochs_.Next(), 1001u);
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
