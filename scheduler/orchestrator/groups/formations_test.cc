#include "scheduler/orchestrator/groups/formations.h"

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "scheduler/orchestrator/testing/parts_testing.h"

namespace skein::scheduler::orchestrator {
namespace {

using Act = FormationOrder::Act;
using Phase = FormationTold::Phase;

class FormationsTest : public PartsTest {
 protected:
  explicit FormationsTest(FormationConfig config = {}) : PartsTest(nullptr, std::move(config)) {}
  // Four decode instances of a node, whose communicators are made.
  void SetUp() override {
    for (uint64_t i = 1; i <= 4; ++i) members_.push_back(Join(Role::kDecode, i));
    MakeCommunicators();
  }
  void MakeCommunicators() {
    now_ = groups_.NextDue();
    workers_.OrderGroups(now_);
    for (const InstanceId member : members_) Report(member);
    effects_.clear();
  }
  // Its communicators are made, and it runs so many requests.
  void Report(InstanceId member, int64_t running = 0) {
    const Instance& instance = *registry_.Find(member);
    ReportRequest report{.instance = member,
                         .incarnation = instance.identity.incarnation,
                         .serial = 1,
                         .load = instance.load,
                         .held = {}};
    report.load.groups_made = groups_.OrderOf(member).generation;
    report.load.running_requests = running;
    report.held_digest = instance.held_digest.value();
    workers_.On(ReportCalled{instance.connection, std::move(report)}, now_);
  }
  void Tell(InstanceId member, uint64_t epoch, Phase phase, absl::Status why = {}) {
    formations_.On(FormationReported{member, {.epoch = epoch, .phase = phase, .why = why}}, now_);
  }
  void Order(Act act, std::vector<InstanceId> instances, std::string group = "", int32_t size = 0,
             Switch how = Switch::kSequential, OwnSequences own = OwnSequences::kShare) {
    effects_.clear();
    formations_.On(FormationCalled{{++calls_}, {act, std::move(instances), group, size, how, own}},
                   now_);
  }
  bool Closed(size_t member) { return registry_.Find(members_[member])->closed_by_group; }
  // All that were asked prepare, and all are bound. Returns the epochs.
  std::vector<uint64_t> CompleteBinds() {
    const std::vector<CallPrepareFormation> asked = Of<CallPrepareFormation>();
    std::vector<uint64_t> epochs;
    for (const CallPrepareFormation& one : asked) {
      Tell(one.instance, one.request.epoch, Phase::kPrepared);
      if (epochs.empty() || epochs.back() != one.request.epoch) epochs.push_back(one.request.epoch);
    }
    for (const CallPrepareFormation& one : asked) {
      Tell(one.instance, one.request.epoch, Phase::kBound);
    }
    return epochs;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& one : formations_.Show(*groups_.Named("m@a")).formations) {
      names.push_back(FormationName(one.epoch == 0 ? 1 : static_cast<int32_t>(one.members.size())) +
                      (one.pinned ? " pinned" : "") +
                      (one.stage == "stands" ? "" : " " + std::string(one.stage)));
    }
    return names;
  }
  using List = std::vector<std::string>;

  std::vector<InstanceId> members_;
  uint64_t calls_ = 0;
};

TEST_F(FormationsTest, AnOperatorBindsAndReleases) {
  Order(Act::kBind, {members_[2], members_[3]});
  ASSERT_EQ(Of<CallPrepareFormation>().size(), 2u);
  EXPECT_EQ(Of<CallPrepareFormation>()[0].request.first, 2);
  EXPECT_EQ(Names(), (List{"independent", "bound(2) pinned binding"}));
  EXPECT_TRUE(Of<AnswerFormation>().empty()) << "it is answered when it stands";
  const uint64_t epoch = CompleteBinds().at(0);
  ASSERT_EQ(Of<CallCommitFormation>().size(), 1u);
  EXPECT_EQ(Of<CallCommitFormation>()[0].instance, members_[2]) << "the lead alone";
  ASSERT_EQ(Of<AnswerFormation>().size(), 1u);
  EXPECT_TRUE(Of<AnswerFormation>()[0].status.ok());
  EXPECT_EQ(Of<AnswerFormation>()[0].done[0].substr(0, 24), "bound(2): instances 3, 4");
  ASSERT_EQ(Of<FormationSwitched>().size(), 1u);
  EXPECT_EQ(Of<FormationSwitched>()[0].group, "m@a");
  EXPECT_EQ(Names(), (List{"independent", "bound(2) pinned"}));

  Order(Act::kRelease, {members_[3]});
  ASSERT_EQ(Of<CallEndFormation>().size(), 1u);
  EXPECT_EQ(Of<CallEndFormation>()[0].request.how, Switch::kSequential);
  for (const size_t i : {2, 3}) Tell(members_[i], epoch, Phase::kEnded);
  ASSERT_EQ(Of<AnswerFormation>().size(), 1u);
  EXPECT_TRUE(Of<AnswerFormation>()[0].status.ok());
  EXPECT_EQ(Names(), (List{"independent", "independent pinned"}));
}

TEST_F(FormationsTest, AWholeGroupIsBoundInPartsOfASize) {
  Order(Act::kBind, {}, "m@a", 2);
  EXPECT_EQ(CompleteBinds().size(), 2u);
  EXPECT_EQ(Of<AnswerFormation>().at(0).done.size(), 2u);
  EXPECT_EQ(Names(), (List{"bound(2) pinned", "bound(2) pinned"}));
  Order(Act::kBind, {}, "m@a");
  EXPECT_EQ(Of<CallEndFormation>().size(), 2u) << "both go before the larger one";
  for (const CallEndFormation& end : Of<CallEndFormation>()) {
    for (const InstanceId member : formations_.LiveOf(end.instance)->members) {
      Tell(member, end.request.epoch, Phase::kEnded);
    }
  }
  EXPECT_EQ(CompleteBinds().size(), 1u);
  EXPECT_EQ(Names(), (List{"bound(4) pinned"}));
  EXPECT_TRUE(Of<AnswerFormation>().at(0).status.ok());
}

// Also those that came after its latest GroupOrder: else the policy would bind them at once.
TEST_F(FormationsTest, AnOrderOfAGroupMeansAllItsMembers) {
  members_.push_back(Join(Role::kDecode, 5));
  Order(Act::kRelease, {}, "m@a");
  MakeCommunicators();
  EXPECT_EQ(Names(), (List{"independent pinned"}));
}

TEST_F(FormationsTest, AnOrderThatCannotBeCarriedOutNamesWhatCan) {
  Order(Act::kBind, {members_[1], members_[2]});
  EXPECT_EQ(Of<AnswerFormation>().at(0).status.message(),
            "instances 2, 3 cannot be bound together; of this group can: (1, 2), (3, 4), "
            "(1, 2, 3, 4)");
  Order(Act::kBind, {}, "m@a", 3);
  EXPECT_EQ(Of<AnswerFormation>().at(0).status.message().substr(0, 9), "size: 3 o");
  Order(Act::kRelease, {}, "m@b");
  EXPECT_TRUE(absl::IsNotFound(Of<AnswerFormation>().at(0).status));
  Order(Act::kPin, {{99}});
  EXPECT_EQ(Of<AnswerFormation>().at(0).status.message(), "instance 99 is unknown");
  const InstanceId prefill = Join(Role::kPrefill, 9);
  Order(Act::kBind, {members_[0], prefill});
  EXPECT_TRUE(absl::IsInvalidArgument(Of<AnswerFormation>().at(0).status));
  EXPECT_TRUE(formations_.Show(*groups_.Named("m@a")).formations[0].epoch == 0);
}

TEST_F(FormationsTest, ABindThatFailsIsAnsweredAndItsPinIsGone) {
  Order(Act::kBind, {members_[0], members_[1]});
  const uint64_t epoch = Of<CallPrepareFormation>().at(0).request.epoch;
  Tell(members_[0], epoch, Phase::kPrepared);
  Tell(members_[1], epoch, Phase::kEnded, absl::UnavailableError("it drains"));
  Tell(members_[0], epoch, Phase::kEnded);
  ASSERT_EQ(Of<AnswerFormation>().size(), 1u);
  EXPECT_TRUE(absl::IsAborted(Of<AnswerFormation>()[0].status));
  EXPECT_NE(Of<AnswerFormation>()[0].status.message().find("it drains"), std::string::npos);
  EXPECT_EQ(Names(), (List{"independent"}));
  effects_.clear();
  now_ += 3600 * kSecondUs;
  Report(members_[0]);
  EXPECT_TRUE(Of<CallPrepareFormation>().empty()) << "nobody asked again";
}

TEST_F(FormationsTest, InstancesOfUnequalPoolsAreNotBound) {
  registry_.Find(members_[1])->identity.total_blocks = 20;
  Order(Act::kBind, {members_[0], members_[1]});
  EXPECT_EQ(Of<AnswerFormation>().at(0).status.message(),
            "instances 1 and 2 have 10 and 20 KV blocks: only instances with equally many are "
            "bound together");
  EXPECT_TRUE(Of<CallPrepareFormation>().empty());
  registry_.Find(members_[1])->identity.total_blocks = 10;
}

TEST_F(FormationsTest, AnInstanceWithoutCommunicatorsIsNotBound) {
  members_.push_back(Join(Role::kDecode, 5));
  now_ = groups_.NextDue();
  workers_.OrderGroups(now_);
  Order(Act::kBind, {members_[0], members_[1]});
  EXPECT_EQ(Of<AnswerFormation>().at(0).status.message(),
            "instance 1 has not made the group's communicators yet");
}

TEST_F(FormationsTest, AMemberThatLeavesEndsWhatItWasBoundIn) {
  Order(Act::kBind, {}, "m@a");
  const uint64_t epoch = CompleteBinds().at(0);
  effects_.clear();
  formations_.Left(members_[3], now_);
  EXPECT_FALSE(Of<CallEndFormation>().empty());
  for (const CallEndFormation& end : Of<CallEndFormation>()) {
    EXPECT_EQ(end.request.epoch, epoch);
    EXPECT_EQ(end.request.how, Switch::kHard);
  }
  for (const size_t i : {0, 1, 2}) Tell(members_[i], epoch, Phase::kEnded);
  ASSERT_EQ(Of<FormationSwitched>().size(), 1u);
  EXPECT_EQ(Of<FormationSwitched>()[0].ended.outcome, SwitchOutcome::kFailed);
  EXPECT_EQ(formations_.LiveOf(members_[0]), nullptr);
}

TEST_F(FormationsTest, AMemberThatDrainsIsReleased) {
  Order(Act::kBind, {members_[0], members_[1]});
  CompleteBinds();
  effects_.clear();
  now_ += kSecondUs;
  Instance* drained = registry_.Find(members_[1]);
  drained->drain_order = true;
  registry_.Recount(*drained);
  Report(members_[0]);
  ASSERT_EQ(Of<CallEndFormation>().size(), 1u);
  EXPECT_EQ(Of<CallEndFormation>()[0].instance, members_[0]);
  EXPECT_EQ(Of<CallEndFormation>()[0].request.how, Switch::kSequential);
  drained->drain_order.reset();
  registry_.Recount(*drained);
}

TEST_F(FormationsTest, AnotherOrderTakesThePlaceOfOneThatIsNotAnswered) {
  Order(Act::kBind, {members_[0], members_[1]});
  const uint64_t epoch = Of<CallPrepareFormation>().at(0).request.epoch;
  Order(Act::kRelease, {members_[0]});
  EXPECT_TRUE(absl::IsAborted(Of<AnswerFormation>().at(0).status)) << "the bind";
  for (const size_t i : {0, 1}) Tell(members_[i], epoch, Phase::kEnded);
  EXPECT_TRUE(Of<AnswerFormation>().at(1).status.ok()) << "the release";
  EXPECT_EQ(Names(), (List{"independent pinned", "independent"}));
}

TEST_F(FormationsTest, AHardReleaseHastensOneThatWaits) {
  Order(Act::kBind, {members_[0], members_[1]});
  const uint64_t epoch = CompleteBinds().at(0);
  Order(Act::kRelease, {members_[0]});
  Order(Act::kRelease, {members_[0]}, "", 0, Switch::kHard);
  EXPECT_EQ(Of<CallEndFormation>().at(0).request.how, Switch::kHard);
  for (const size_t i : {0, 1}) Tell(members_[i], epoch, Phase::kEnded);
  EXPECT_EQ(Of<AnswerFormation>().size(), 2u) << "both are answered";
}

TEST_F(FormationsTest, ABindThatWaitsIsAnsweredWhenAnotherOrderTakesItsPin) {
  Order(Act::kBind, {}, "m@a");
  const uint64_t epoch = CompleteBinds().at(0);
  Order(Act::kBind, {members_[2], members_[3]});
  EXPECT_TRUE(Of<AnswerFormation>().empty()) << "it waits for the release";
  Order(Act::kUnpin, {}, "m@a");
  ASSERT_EQ(Of<AnswerFormation>().size(), 2u);
  EXPECT_TRUE(Of<AnswerFormation>()[0].status.ok()) << "the unpin";
  EXPECT_TRUE(absl::IsAborted(Of<AnswerFormation>()[1].status));
  for (const InstanceId member : members_) Tell(member, epoch, Phase::kEnded);
  EXPECT_EQ(Names(), (List{"independent"}));
}

TEST_F(FormationsTest, WhatAnOrderMakesRoomForDoesNotFailIt) {
  Order(Act::kBind, {members_[0], members_[1]});
  const uint64_t first = Of<CallPrepareFormation>().at(0).request.epoch;
  Order(Act::kBind, {}, "m@a");
  ASSERT_EQ(Of<AnswerFormation>().size(), 1u);
  EXPECT_TRUE(absl::IsAborted(Of<AnswerFormation>()[0].status)) << "the first";
  for (const size_t i : {0, 1}) Tell(members_[i], first, Phase::kEnded);
  EXPECT_EQ(CompleteBinds().size(), 1u);
  ASSERT_EQ(Of<AnswerFormation>().size(), 2u);
  EXPECT_TRUE(Of<AnswerFormation>()[1].status.ok()) << Of<AnswerFormation>()[1].status;
}

TEST_F(FormationsTest, APinnedGroupThatFailsIsBoundAgainAfterAPause) {
  Order(Act::kBind, {members_[0], members_[1]});
  for (int i = 0; i < 3; ++i) {
    const uint64_t epoch = CompleteBinds().at(0);
    effects_.clear();
    for (const size_t member : {0, 1}) {
      Tell(members_[member], epoch, Phase::kEnded, absl::InternalError("its step failed"));
    }
    EXPECT_EQ(Of<FormationSwitched>().at(0).ended.outcome, SwitchOutcome::kFailed);
    EXPECT_TRUE(Of<CallPrepareFormation>().empty()) << "not at once";
    const TimeUs failed_us = now_;
    while (Of<CallPrepareFormation>().empty()) {
      now_ += kSecondUs / 2;
      Report(members_[0]);
    }
    EXPECT_EQ(now_ - failed_us, kSecondUs << i);
  }
}

TEST_F(FormationsTest, AnInstanceIsShownOnceWhileAGroupEnds) {
  Order(Act::kBind, {}, "m@a");
  const uint64_t epoch = CompleteBinds().at(0);
  Order(Act::kRelease, {}, "m@a");
  Tell(members_[0], epoch, Phase::kEnded);
  Tell(members_[2], epoch, Phase::kEnded);
  const Formations::Shown shown = formations_.Show(*groups_.Named("m@a"));
  size_t instances = 0;
  for (const auto& one : shown.formations) instances += one.members.size();
  EXPECT_EQ(instances, members_.size());
  for (const size_t i : {1, 3}) Tell(members_[i], epoch, Phase::kEnded);
}

// ---- who gets requests ----

TEST_F(FormationsTest, RequestsGoToTheLeadOfABoundGroupAndRunInIt) {
  Join(Role::kPrefill, 9);
  Order(Act::kBind, {}, "m@a");
  EXPECT_EQ(Submit(1).formation, 0u) << "it is not bound yet";
  Order(Act::kBind, {}, "m@a");
  const uint64_t epoch = formations_.LiveOf(members_[0])->report.epoch;
  for (const Phase phase : {Phase::kPrepared, Phase::kBound}) {
    for (const InstanceId member : members_) Tell(member, epoch, phase);
  }
  for (uint64_t serial = 2; serial < 4; ++serial) {
    const Request& request = Submit(serial);
    EXPECT_EQ(request.decode, members_[0]);
    EXPECT_EQ(request.formation, epoch);
    ASSERT_EQ(Of<CallAnnounce>().size(), 1u);
    EXPECT_EQ(Of<CallAnnounce>()[0].request.formation, epoch);
    EXPECT_EQ(Of<CallAnnounce>()[0].request.writers.size(), 1u);
    Accept(request);
    Open(request);
    EXPECT_EQ(request.explanation.plans.back().formation, 4);
  }
  Order(Act::kRelease, {}, "m@a");
  const Request& during = Submit(4);
  EXPECT_EQ(during.formation, 0u) << "it is being released";
  EXPECT_NE(during.decode, members_[0]) << "each member takes requests alone, not only the lead";
  for (const InstanceId member : members_) Tell(member, epoch, Phase::kEnded);
  const Request& last = Submit(5);
  EXPECT_EQ(last.formation, 0u);
  EXPECT_NE(last.decode, members_[0]) << "the others have more room";
}

// Who has to wait for its own sequences gets no new ones. With a soft bind the lead does, and so
// does each other member whose own have ended, until the bind is committed.
TEST_F(FormationsTest, MembersWhoseOwnSequencesEndFirstGetNothingNew) {
  using Own = OwnSequences;
  for (const Own own : {Own::kShare, Own::kSequential, Own::kSoftPreempt, Own::kHardPreempt}) {
    SCOPED_TRACE(ToString(own));
    const bool lead_waits = own == Own::kSequential;
    const bool other_waits = lead_waits || own == Own::kSoftPreempt;
    Order(Act::kBind, {members_[0], members_[1]}, "", 0, Switch::kSequential, own);
    ASSERT_EQ(Of<CallPrepareFormation>().size(), 2u);
    for (const CallPrepareFormation& one : Of<CallPrepareFormation>()) {
      EXPECT_EQ(one.request.own, own);
    }
    const uint64_t epoch = Of<CallPrepareFormation>()[0].request.epoch;
    EXPECT_EQ(Closed(0), lead_waits);
    EXPECT_EQ(Closed(1), other_waits);
    EXPECT_FALSE(Closed(2));
    Tell(members_[1], epoch, Phase::kPrepared);
    EXPECT_EQ(Closed(1), lead_waits) << "the other one is waited for";
    Tell(members_[0], epoch, Phase::kPrepared);
    EXPECT_EQ(Closed(0), lead_waits) << "it is bound with the first step";
    EXPECT_TRUE(Closed(1));
    for (const size_t i : {0, 1}) Tell(members_[i], epoch, Phase::kBound);
    EXPECT_FALSE(Closed(0));
    EXPECT_TRUE(Closed(1));
    EXPECT_EQ(Of<FormationSwitched>().back().ended.own, own);
    Order(Act::kRelease, {members_[0]}, "", 0, Switch::kHard);
    for (const size_t i : {0, 1}) Tell(members_[i], epoch, Phase::kEnded);
    EXPECT_FALSE(Closed(0) || Closed(1));
  }
}

TEST_F(FormationsTest, ABindThatIsTakenBackOpensItsMembers) {
  Order(Act::kBind, {}, "m@a", 0, Switch::kSequential, OwnSequences::kSequential);
  const uint64_t epoch = Of<CallPrepareFormation>().at(0).request.epoch;
  EXPECT_TRUE(Closed(0) && Closed(3));
  Order(Act::kRelease, {}, "m@a");
  for (const InstanceId member : members_) Tell(member, epoch, Phase::kEnded);
  for (size_t i = 0; i < 4; ++i) EXPECT_FALSE(Closed(i));
}

// They need not wait until what the group runs has ended.
TEST_F(FormationsTest, WhenTheLeadServesNoMoreTheOthersGetRequests) {
  for (const bool missed : {false, true}) {
    SCOPED_TRACE(missed);
    Order(Act::kBind, {}, "m@a");
    const uint64_t epoch = CompleteBinds().at(0);
    effects_.clear();
    EXPECT_TRUE(Closed(1) && Closed(3));
    now_ += kSecondUs;
    Instance& lead = *registry_.Find(members_[0]);
    lead.missed = missed;
    if (!missed) lead.drain_order = true;
    registry_.Recount(lead);
    Report(members_[1]);
    ASSERT_EQ(Of<CallEndFormation>().size(), 1u);
    EXPECT_EQ(Of<CallEndFormation>()[0].request.how, Switch::kSequential);
    for (const size_t i : {1, 2, 3}) EXPECT_FALSE(Closed(i)) << i;
    EXPECT_TRUE(formations_.CheckInvariants().ok()) << formations_.CheckInvariants();
    Order(Act::kUnpin, {}, "m@a");
    for (const InstanceId member : members_) Tell(member, epoch, Phase::kEnded);
    lead.drain_order.reset();
    lead.missed = false;
    registry_.Recount(lead);
  }
}

// ---- the policy ----

class AutomaticFormationsTest : public FormationsTest {
 protected:
  static FormationConfig Gains() {
    FormationConfig config;
    config.profiles[""] = {.gains = {{2, 1.6}, {4, 2.5}},
                           .shifts = {{4, ShiftRule{.tokens = 96, .tp = 2}}}};
    return config;
  }
  explicit AutomaticFormationsTest(FormationConfig config = Gains())
      : FormationsTest(std::move(config)) {}
  void Drive(int64_t running) {
    for (const InstanceId member : members_) {
      Instance& instance = *registry_.Find(member);
      instance.load.running_requests = running;
      registry_.Recount(instance);
    }
    effects_.clear();
    formations_.Reported(members_[0], now_);
  }
};

TEST_F(AutomaticFormationsTest, QuietGroupsAreBoundAndBusyOnesReleased) {
  Drive(0);
  EXPECT_TRUE(Of<CallPrepareFormation>().empty()) << "a new group stays as it is for a while";
  now_ += 11 * kSecondUs;
  Drive(0);
  ASSERT_EQ(Of<CallPrepareFormation>().size(), 4u);
  EXPECT_EQ(Of<CallPrepareFormation>()[0].request.shift, (ShiftRule{.tokens = 96, .tp = 2}))
      << "from the profile";
  for (const Phase phase : {Phase::kPrepared, Phase::kBound}) {
    for (const InstanceId member : members_) {
      formations_.On(
          FormationReported{
              member,
              {.epoch = formations_.LiveOf(member)->report.epoch, .phase = phase, .why = {}}},
          now_);
    }
  }
  EXPECT_EQ(formations_.Show(*groups_.Named("m@a")).formations.at(0).stage, "stands");
  now_ += 5 * kSecondUs;
  Drive(8);
  EXPECT_TRUE(Of<CallEndFormation>().empty()) << "it is kept for a while";
  now_ += 6 * kSecondUs;
  Drive(8);
  EXPECT_EQ(Of<CallEndFormation>().size(), 1u);
}

TEST_F(AutomaticFormationsTest, AnOrderSaysInPlaceOfTheProfileWhichStepsRunInABase) {
  const auto bind = [&](std::optional<ShiftRule> shift) {
    FormationOrder order = {.act = Act::kBind, .group = "m@a", .size = 4};
    order.shift = shift;
    effects_.clear();
    formations_.On(FormationCalled{{++calls_}, order}, now_);
    std::set<std::optional<ShiftRule>> asked;
    for (const auto& one : Of<CallPrepareFormation>()) asked.insert(one.request.shift);
    const uint64_t epoch = CompleteBinds().at(0);
    Order(Act::kRelease, {}, "m@a");
    for (const InstanceId member : members_) Tell(member, epoch, Phase::kEnded);
    return asked;
  };
  using Asked = std::set<std::optional<ShiftRule>>;
  for (const ShiftRule& shift :
       {ShiftRule{.tokens = 0}, ShiftRule{.tokens = 1'000'000}, ShiftRule{.tokens = 7, .tp = 2}}) {
    EXPECT_EQ(bind(shift), Asked{shift});
  }
  EXPECT_EQ(bind(std::nullopt), (Asked{ShiftRule{.tokens = 96, .tp = 2}}))
      << "the order before is forgotten";
}

TEST_F(AutomaticFormationsTest, ABaseThatDoesNotFitTheSizeIsRefused) {
  for (const int32_t tp : {3, 4}) {
    FormationOrder order = {.act = Act::kBind, .group = "m@a", .size = 4};
    order.shift = ShiftRule{.tokens = 0, .tp = tp};
    effects_.clear();
    formations_.On(FormationCalled{{++calls_}, order}, now_);
    ASSERT_EQ(Of<AnswerFormation>().size(), 1u);
    EXPECT_EQ(Of<AnswerFormation>()[0].status,
              absl::InvalidArgumentError(
                  absl::StrCat("shift_tp: ", tp, " is not a power of two below the size 4")));
    EXPECT_TRUE(Of<CallPrepareFormation>().empty());
  }
}

// After it failed, it is bound again as the operator has ordered, not as the policy would.
TEST_F(AutomaticFormationsTest, WhatIsPinnedIsBoundAgainAsItWasOrdered) {
  FormationOrder order = {.act = Act::kBind, .instances = {members_[0], members_[1]}};
  order.own = OwnSequences::kSoftPreempt;
  order.shift = ShiftRule{.tokens = 12};
  effects_.clear();
  formations_.On(FormationCalled{{++calls_}, order}, now_);
  const uint64_t epoch = CompleteBinds().at(0);
  for (int failures = 0; failures < 2; ++failures) {
    const uint64_t failed = formations_.LiveOf(members_[0])->report.epoch;
    for (const size_t i : {0, 1}) {
      Tell(members_[i], failed, Phase::kEnded, absl::InternalError("a step failed"));
    }
    now_ += 5 * kSecondUs;
    Drive(0);
    const std::vector<CallPrepareFormation> asked = Of<CallPrepareFormation>();
    ASSERT_EQ(asked.size(), 2u);
    EXPECT_GT(asked[0].request.epoch, epoch);
    EXPECT_EQ(asked[0].request.own, OwnSequences::kSoftPreempt);
    EXPECT_EQ(asked[0].request.shift, ShiftRule{.tokens = 12});
    Order(Act::kPin, {members_[0]});  // it stays as it is, being bound
  }
}

class SequentialFormationsTest : public AutomaticFormationsTest {
 protected:
  static FormationConfig Sequential() {
    FormationConfig config = Gains();
    config.own = OwnSequences::kSequential;
    EXPECT_EQ(config.own_for.at(BindReason::kPriority), OwnSequences::kSoftPreempt);
    return config;
  }
  explicit SequentialFormationsTest(FormationConfig config = Sequential())
      : AutomaticFormationsTest(std::move(config)) {}
};

TEST_F(SequentialFormationsTest, ThePolicyBindsAsConfigured) {
  now_ += 11 * kSecondUs;
  Drive(0);
  ASSERT_EQ(Of<CallPrepareFormation>().size(), 4u);
  EXPECT_EQ(Of<CallPrepareFormation>()[0].request.own, OwnSequences::kSequential);
}

class HardForLoadTest : public SequentialFormationsTest {
 protected:
  static FormationConfig HardForLoad() {
    FormationConfig config = Sequential();
    config.own_for[BindReason::kLoad] = OwnSequences::kHardPreempt;
    return config;
  }
  HardForLoadTest() : SequentialFormationsTest(HardForLoad()) {}
};

TEST_F(HardForLoadTest, AReasonMayHaveAWayOfItsOwn) {
  now_ += 11 * kSecondUs;
  Drive(0);
  ASSERT_EQ(Of<CallPrepareFormation>().size(), 4u);
  EXPECT_EQ(Of<CallPrepareFormation>()[0].request.own, OwnSequences::kHardPreempt);
}

TEST_F(AutomaticFormationsTest, ABindThatFailsIsTriedAgainAfterAPauseThatDoubles) {
  now_ += 11 * kSecondUs;
  std::vector<TimeUs> tries;
  for (const TimeUs until = now_ + 20 * kSecondUs; now_ < until; now_ += kSecondUs / 2) {
    Drive(0);
    if (Of<CallPrepareFormation>().empty()) continue;
    tries.push_back(now_);
    const uint64_t epoch = Of<CallPrepareFormation>()[0].request.epoch;
    for (const InstanceId member : members_) {
      formations_.On(
          FormationReported{
              member,
              {.epoch = epoch, .phase = Phase::kEnded, .why = absl::UnavailableError("no")}},
          now_);
    }
  }
  ASSERT_EQ(tries.size(), 5u);
  for (size_t i = 1; i + 1 < tries.size(); ++i) {
    EXPECT_EQ(tries[i + 1] - tries[i], 2 * (tries[i] - tries[i - 1]));
  }
}

TEST_F(FormationsTest, WithoutAProfileNothingIsBoundAndItSaysWhy) {
  now_ += 100 * kSecondUs;
  for (const InstanceId member : members_) Report(member);
  EXPECT_TRUE(Of<CallPrepareFormation>().empty());
  const Formations::Shown shown = formations_.Show(*groups_.Named("m@a"));
  EXPECT_NE(shown.why.find("profile"), std::string::npos) << shown.why;
  EXPECT_FALSE(shown.rejected.empty());
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
