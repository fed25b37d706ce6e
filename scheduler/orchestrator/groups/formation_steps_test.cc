#include "scheduler/orchestrator/groups/formation_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/vocabulary/mix64.h"

namespace skein::scheduler::orchestrator {
namespace {

using Members = std::vector<InstanceId>;
using Phase = FormationTold::Phase;
using Stage = FormationSwitch::Stage;

// A group of eight whose members answer at once.
class FormationStepsTest : public ::testing::Test {
 protected:
  FormationStepsTest() : formation_({}, &epochs_) {
    GroupOrder order;
    order.generation = 1;
    for (uint64_t i = 1; i <= 8; ++i) order.members.push_back({{i}, "member-" + std::to_string(i)});
    formation_.Regrouped(order, now_, &effects_);
  }

  Members Of(const Subset& subset) const { return MembersOf(formation_.order(), subset); }
  uint64_t Bind(const Subset& subset) {
    const auto epoch = formation_.Bind(subset, "test", now_, &effects_);
    EXPECT_TRUE(epoch.ok()) << epoch.status();
    return epoch.value_or(0);
  }
  void Tell(uint64_t epoch, Phase phase) {
    const Members members = formation_.live().at(epoch).members;
    for (const InstanceId member : members) {
      formation_.Take(member, {.epoch = epoch, .phase = phase}, now_, &effects_);
    }
  }
  uint64_t BindFully(const Subset& subset) {
    const uint64_t epoch = Bind(subset);
    Tell(epoch, Phase::kPrepared);
    Tell(epoch, Phase::kBound);
    return epoch;
  }
  std::vector<ReleaseStep> Steps(const std::vector<Members>& chosen, Switch how) const {
    return ReleaseSteps(formation_, chosen, [how](const FormationSwitch::Live&) { return how; });
  }

  TimeUs now_ = 0;
  FormationEpochs epochs_;
  SwitchEffects effects_;
  FormationSwitch formation_;
};

TEST_F(FormationStepsTest, WhatIsNotChosenIsReleasedOnce) {
  const uint64_t four = BindFully({0, 4});
  const uint64_t two = Bind({4, 2});  // being bound
  EXPECT_TRUE(Steps({Of({0, 4}), Of({4, 2})}, Switch::kSequential).empty());
  const std::vector<ReleaseStep> steps = Steps({Of({4, 4})}, Switch::kSequential);
  EXPECT_EQ(steps, (std::vector<ReleaseStep>{{four, {1}, Switch::kSequential},
                                             {two, {5}, Switch::kSequential}}));
  for (const ReleaseStep& step : steps) {
    EXPECT_TRUE(formation_.Release(step.lead, step.how, "test", now_, &effects_).ok());
  }
  EXPECT_TRUE(Steps({}, Switch::kSequential).empty());
}

TEST_F(FormationStepsTest, AKindReleaseIsHastened) {
  const uint64_t epoch = BindFully({0, 2});
  ASSERT_TRUE(formation_.Release({1}, Switch::kSequential, "test", now_, &effects_).ok());
  ASSERT_EQ(formation_.live().at(epoch).stage, Stage::kReleasing);
  EXPECT_TRUE(Steps({}, Switch::kSequential).empty());
  EXPECT_EQ(Steps({}, Switch::kHard), (std::vector<ReleaseStep>{{epoch, {1}, Switch::kHard}}));
  ASSERT_TRUE(formation_.Release({1}, Switch::kHard, "test", now_, &effects_).ok());
  EXPECT_TRUE(Steps({}, Switch::kHard).empty());
  // Chosen again: it is let be.
  EXPECT_TRUE(Steps({Of({0, 2})}, Switch::kHard).empty());
}

TEST_F(FormationStepsTest, FreeAreThoseThatHoldNothing) {
  EXPECT_TRUE(IsFree(formation_, Of({0, 8})));
  const uint64_t epoch = BindFully({2, 2});
  EXPECT_FALSE(IsFree(formation_, Of({0, 4})));
  EXPECT_TRUE(IsFree(formation_, Of({0, 2})));
  ASSERT_TRUE(formation_.Release({3}, Switch::kHard, "test", now_, &effects_).ok());
  EXPECT_FALSE(IsFree(formation_, Of({0, 4})));
  Tell(epoch, Phase::kEnded);
  EXPECT_TRUE(IsFree(formation_, Of({0, 4})));
}

TEST_F(FormationStepsTest, PresentIsWhatIsBoundOrBeingBoundForAReason) {
  const uint64_t four = BindFully({0, 4});
  const uint64_t two = Bind({4, 2});
  EXPECT_TRUE(PresentIn(formation_, {}).empty());
  const std::vector<GroupLoad::Present> present =
      PresentIn(formation_, {{four, BindReason::kLoad}, {two, BindReason::kPriority}});
  ASSERT_EQ(present.size(), 2u);
  EXPECT_EQ(present[0].subset, (Subset{0, 4}));
  EXPECT_EQ(present[1].subset, (Subset{4, 2}));
  EXPECT_EQ(present[1].reason, BindReason::kPriority);
  ASSERT_TRUE(formation_.Release({1}, Switch::kSequential, "test", now_, &effects_).ok());
  EXPECT_EQ(PresentIn(formation_, {{four, BindReason::kLoad}, {two, BindReason::kLoad}}).size(),
            1u);
}

// Whatever is chosen, one round after another: it is bound in the end, and nothing else.
TEST_F(FormationStepsTest, FollowingTheStepsBindsWhatWasChosen) {
  uint64_t random = 3;
  for (int i = 0; i < 2'000; ++i) {
    std::vector<Subset> wanted;
    for (int32_t first = 0; first < 8;) {
      const auto size = int32_t{1} << (Mix64(random += kMix64Step) % 4);
      if (size > 1 && IsBindable({first, size}, 8)) wanted.push_back({first, size});
      first += first % size == 0 && first + size <= 8 ? size : 1;
    }
    std::vector<Members> chosen;
    for (const Subset& subset : wanted) chosen.push_back(Of(subset));
    for (int round = 0; round < 2; ++round) {
      for (const ReleaseStep& step : Steps(chosen, Switch::kHard)) {
        ASSERT_TRUE(formation_.Release(step.lead, step.how, "test", now_, &effects_).ok());
        Tell(step.epoch, Phase::kEnded);
      }
      for (size_t k = 0; k < chosen.size(); ++k) {
        if (IsFree(formation_, chosen[k])) BindFully(wanted[k]);
      }
    }
    std::vector<Members> bound;
    for (const auto& [epoch, live] : formation_.live()) {
      EXPECT_EQ(live.stage, Stage::kBound);
      bound.push_back(live.members);
    }
    std::sort(bound.begin(), bound.end());
    EXPECT_EQ(bound, chosen);
    EXPECT_TRUE(formation_.CheckInvariants().ok());
    effects_.clear();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
