// Weights that are shared, in FormationSwitch: how a formation begins, changes its mode and ends.
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/groups/formation_switch.h"

namespace skein::scheduler::orchestrator {
namespace {

using Lines = std::vector<std::string>;
using Phase = FormationTold::Phase;
using Stage = FormationSwitch::Stage;

constexpr uint64_t kFirst = 100;
constexpr FormationLimits kLimits = {.prepare_us = 10'000,
                                     .commit_us = 20'000,
                                     .release_us = 500'000,
                                     .end_us = 30'000,
                                     .leave_us = 90'000,
                                     .ready_us = 7'000,
                                     .set_us = 8'000};

std::string Text(const OrderMode& order) {
  constexpr const char* kActs[] = {"ready", "set", "drop"};
  return absl::StrCat(order.epoch, ".", order.turn, " ", kActs[static_cast<int>(order.act)], " ",
                      ToString(order.mode));
}

std::string Text(const SwitchEffect& effect) {
  if (const auto* prepare = std::get_if<SendPrepare>(&effect)) {
    const PrepareFormation& order = prepare->order;
    return absl::StrCat("prepare ", prepare->to.value, ": ", order.epoch, " ", order.first, "+",
                        order.size, " ", order.shared ? ToString(*order.shared) : "bound");
  }
  if (const auto* commit = std::get_if<SendCommit>(&effect)) {
    return absl::StrCat("commit ", commit->to.value);
  }
  if (const auto* end = std::get_if<SendEnd>(&effect)) {
    return absl::StrCat("end ", end->to.value,
                        end->order.how == Switch::kHard ? " hard" : " sequential");
  }
  if (const auto* mode = std::get_if<SendMode>(&effect)) {
    return absl::StrCat("mode ", mode->to.value, ": ", Text(mode->order));
  }
  if (const auto* changed = std::get_if<ModeChanged>(&effect)) {
    return absl::StrCat("changed ", ToString(changed->from), " to ", ToString(changed->to), " ",
                        std::string(NameOf(changed->outcome)), changed->reason.empty() ? "" : ": ",
                        changed->reason);
  }
  const auto& ended = std::get<SwitchEnded>(effect);
  std::string text =
      absl::StrCat("ended ", FormationName(ended.from, ended.shared), " to ",
                   FormationName(ended.to, ended.shared), " ", std::string(NameOf(ended.outcome)));
  if (!ended.reason.empty()) absl::StrAppend(&text, ": ", ended.reason);
  for (const InstanceId id : ended.unanswered) absl::StrAppend(&text, ", not by ", id.value);
  return text;
}

class FormationSwitchSharedTest : public ::testing::Test {
 protected:
  FormationSwitchSharedTest() {
    epochs_.BeginAt(kFirst);
    GroupOrder order = {.generation = 1};
    for (const uint64_t id : {1, 2, 3, 4}) order.members.push_back({{id}, ""});
    switch_.Regrouped(order, now_, &effects_);
    Took();
  }

  void Tell(uint64_t id, Phase phase, const char* why = "why") {
    const bool ended = phase == Phase::kEnded;
    switch_.Take({id}, {kFirst, phase, ended ? absl::UnavailableError(why) : absl::OkStatus()},
                 now_, &effects_);
  }
  void TellMode(uint64_t id, uint64_t turn, ModeTold::Phase phase) {
    switch_.Take({id}, ModeTold{kFirst, turn, phase, absl::UnavailableError("no slots")}, now_,
                 &effects_);
  }
  absl::Status SetMode(SharedMode mode) {
    return switch_.SetMode(kFirst, mode, "asked", now_, &effects_);
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
    for (const SwitchEffect& effect : effects_) lines.push_back(Text(effect));
    effects_.clear();
    return lines;
  }
  // Members 1 and 2 share their weights under epoch kFirst, in WaS.
  void ShareTwo() {
    ASSERT_TRUE(switch_.Share({0, 2}, SharedMode::kWas, "asked", now_, &effects_).ok());
    for (const Phase phase : {Phase::kPrepared, Phase::kBound}) {
      for (const uint64_t id : {1, 2}) Tell(id, phase);
    }
    Took();
  }
  const FormationSwitch::Live& Live() { return switch_.live().at(kFirst); }

  TimeUs now_ = 1'000'000;
  FormationEpochs epochs_;
  FormationSwitch switch_{kLimits, &epochs_};
  SwitchEffects effects_;
};

TEST_F(FormationSwitchSharedTest, AllAreToldToEnterWhenAllHavePrepared) {
  EXPECT_EQ(*switch_.Share({2, 2}, SharedMode::kWas, "asked", now_, &effects_), kFirst);
  EXPECT_EQ(Took(), (Lines{"prepare 3: 100 2+2 was", "prepare 4: 100 2+2 was"}));
  Tell(4, Phase::kPrepared);
  EXPECT_EQ(Took(), Lines{});
  Tell(3, Phase::kPrepared);
  EXPECT_EQ(Took(), (Lines{"commit 3", "commit 4"}));
  Tell(3, Phase::kBound);
  EXPECT_EQ(Took(), Lines{});
  Tell(4, Phase::kBound);
  EXPECT_EQ(Took(), Lines{"ended independent to shared(was) done"});
  EXPECT_EQ(switch_.NextDeadline(), kNever);
  EXPECT_EQ(switch_.Share({2, 2}, SharedMode::kWas, "", now_, &effects_).status().message(),
            "cannot make shared(was): instance 3 is bound (shared(was), epoch 100); instance 4 is "
            "bound (shared(was), epoch 100)");
}

TEST_F(FormationSwitchSharedTest, OneThatCannotShareLeavesAllAsTheyWere) {
  ASSERT_TRUE(switch_.Share({0, 2}, SharedMode::kCas, "asked", now_, &effects_).ok());
  Tell(1, Phase::kPrepared);
  Took();
  Tell(2, Phase::kEnded, "the engine 'cpu' cannot share weights");
  EXPECT_EQ(Took(), Lines{"end 1 hard"});
  Tell(1, Phase::kEnded);
  EXPECT_EQ(Took(), Lines{"ended independent to shared(cas) aborted: instance 2 ended it: the "
                          "engine 'cpu' cannot share weights"});
  EXPECT_TRUE(switch_.live().empty());
}

TEST_F(FormationSwitchSharedTest, WhoComesBackIsToldToEnterAgain) {
  ASSERT_TRUE(switch_.Share({0, 2}, SharedMode::kWas, "asked", now_, &effects_).ok());
  for (const uint64_t id : {1, 2}) Tell(id, Phase::kPrepared);
  Took();
  for (const uint64_t id : {1, 2}) {
    switch_.Reconnected({id}, FormationTold{kFirst, Phase::kPrepared}, now_, &effects_);
    EXPECT_EQ(Took(), Lines{absl::StrCat("commit ", id)});
  }
  EXPECT_EQ(Live().stage, Stage::kCommitting);
  EXPECT_EQ(TickAfter(kLimits.commit_us), (Lines{"end 1 hard", "end 2 hard"}));
}

TEST_F(FormationSwitchSharedTest, TheModeChangesInTwoPhases) {
  ShareTwo();
  ASSERT_TRUE(SetMode(SharedMode::kCas).ok());
  EXPECT_EQ(Took(), (Lines{"mode 1: 100.1 ready cas", "mode 2: 100.1 ready cas"}));
  EXPECT_EQ(SetMode(SharedMode::kCas).message(), "epoch 100 changes to cas already");
  TellMode(2, 1, ModeTold::Phase::kReady);
  TellMode(2, 1, ModeTold::Phase::kReady);
  EXPECT_EQ(Took(), Lines{});
  TellMode(1, 1, ModeTold::Phase::kReady);
  EXPECT_EQ(Took(), (Lines{"mode 1: 100.1 set cas", "mode 2: 100.1 set cas"}));
  EXPECT_EQ(*Live().mode, SharedMode::kWas);
  TellMode(1, 1, ModeTold::Phase::kSet);
  TellMode(2, 7, ModeTold::Phase::kSet);  // of no turn that is known
  EXPECT_EQ(Took(), Lines{});
  TellMode(2, 1, ModeTold::Phase::kSet);
  EXPECT_EQ(Took(), Lines{"changed was to cas done"});
  EXPECT_EQ(*Live().mode, SharedMode::kCas);
  EXPECT_EQ(switch_.NextDeadline(), kNever);
  EXPECT_EQ(SetMode(SharedMode::kCas).message(), "epoch 100 works in cas already");
  ASSERT_TRUE(SetMode(SharedMode::kWas).ok());
  EXPECT_EQ(Took().front(), "mode 1: 100.2 ready was");
}

TEST_F(FormationSwitchSharedTest, ARefusalOrSilenceLeavesTheModeAsItIs) {
  ShareTwo();
  ASSERT_TRUE(SetMode(SharedMode::kCas).ok());
  TellMode(1, 1, ModeTold::Phase::kReady);
  Took();
  TellMode(2, 1, ModeTold::Phase::kRefused);
  EXPECT_EQ(Took(), (Lines{"mode 1: 100.1 drop cas", "mode 2: 100.1 drop cas",
                           "changed was to cas aborted: instance 2: no slots"}));
  ASSERT_TRUE(SetMode(SharedMode::kCas).ok());
  TellMode(1, 2, ModeTold::Phase::kReady);
  Took();
  EXPECT_EQ(TickAfter(kLimits.ready_us),
            (Lines{"mode 1: 100.2 drop cas", "mode 2: 100.2 drop cas",
                   "changed was to cas aborted: instance 2 was not ready for cas within 7 ms"}));
  EXPECT_EQ(*Live().mode, SharedMode::kWas);
  EXPECT_EQ(Live().stage, Stage::kBound);
  EXPECT_EQ(switch_.NextDeadline(), kNever);
}

TEST_F(FormationSwitchSharedTest, OneThatDoesNotChangeEndsTheFormationForAll) {
  ShareTwo();
  ASSERT_TRUE(SetMode(SharedMode::kCas).ok());
  for (const uint64_t id : {1, 2}) TellMode(id, 1, ModeTold::Phase::kReady);
  TellMode(1, 1, ModeTold::Phase::kSet);
  Took();
  EXPECT_EQ(TickAfter(kLimits.set_us),
            (Lines{"changed was to cas failed: instance 2 did not change to cas within 8 ms",
                   "end 1 hard", "end 2 hard"}));
  Tell(1, Phase::kEnded);
  EXPECT_EQ(TickAfter(kLimits.leave_us),
            Lines{"ended shared(was) to independent failed: instance 2 did not change to cas "
                  "within 8 ms, not by 2"});
  EXPECT_EQ(switch_.strays().size(), 1u);
}

TEST_F(FormationSwitchSharedTest, WhoComesBackIsToldTheTurnAgain) {
  ShareTwo();
  ASSERT_TRUE(SetMode(SharedMode::kCas).ok());
  TellMode(1, 1, ModeTold::Phase::kReady);
  Took();
  switch_.Reconnected({1}, FormationTold{kFirst, Phase::kBound}, now_, &effects_);
  EXPECT_EQ(Took(), Lines{}) << "it has answered";
  switch_.Reconnected({2}, FormationTold{kFirst, Phase::kBound}, now_, &effects_);
  EXPECT_EQ(Took(), Lines{"mode 2: 100.1 ready cas"});
}

TEST_F(FormationSwitchSharedTest, EachMemberIsToldToLeaveAndLeavesByItself) {
  ShareTwo();
  ASSERT_TRUE(SetMode(SharedMode::kCas).ok());
  Took();
  ASSERT_TRUE(switch_.Release({2}, Switch::kSequential, "asked", now_, &effects_).ok());
  EXPECT_EQ(Took(), (Lines{"changed was to cas aborted: the formation is released",
                           "end 1 sequential", "end 2 sequential"}));
  Tell(1, Phase::kEnded);
  EXPECT_EQ(TickAfter(kLimits.leave_us), Lines{}) << "the other one has sequences that end first";
  ASSERT_TRUE(switch_.Release({2}, Switch::kHard, "online", now_, &effects_).ok());
  EXPECT_EQ(Took().back(), "end 2 hard");
  Tell(2, Phase::kEnded);
  EXPECT_EQ(Took(), Lines{"ended shared(was) to independent done"});
  EXPECT_TRUE(switch_.live().empty());
}

TEST_F(FormationSwitchSharedTest, ADeathFallsBackToEachAlone) {
  ShareTwo();
  ASSERT_TRUE(SetMode(SharedMode::kCas).ok());
  Took();
  switch_.Left({1}, now_, &effects_);
  EXPECT_EQ(Took(), (Lines{"changed was to cas failed: instance 1 left", "end 2 hard"}));
  Tell(2, Phase::kEnded);
  EXPECT_EQ(Took(), Lines{"ended shared(was) to independent failed: instance 1 left"});
}

TEST_F(FormationSwitchSharedTest, ABoundGroupHasNoMode) {
  ASSERT_TRUE(switch_.Bind({0, 2}, "asked", now_, &effects_).ok());
  for (const Phase phase : {Phase::kPrepared, Phase::kBound}) {
    for (const uint64_t id : {1, 2}) Tell(id, phase);
  }
  Took();
  EXPECT_EQ(SetMode(SharedMode::kCas).message(),
            "epoch 100 is no formation that stands and shares its weights");
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
