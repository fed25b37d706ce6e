// Requests that no decode instance holds alone, and urgent ones, at the core.
#include <string>
#include <vector>

#include "scheduler/base/looks.h"
#include "scheduler/orchestrator/testing/long_testing.h"

namespace skein::scheduler {
namespace {

using Act = orchestrator::FormationOrder::Act;
using Phase = FormationTold::Phase;

TEST_F(LongRequestsTest, ALongRequestIsComputedByTheSmallestGroupThatHoldsIt) {
  UpGroup();
  const Effects submitted = Submit(1, 70);
  EXPECT_EQ(Updates<Accepted>(submitted).size(), 1u);
  EXPECT_EQ(StateOf(1), "grouping");
  EXPECT_EQ(core_->Totals().waiting, 1);
  const Effects asked = ReportAll();
  ASSERT_EQ(Of<CallPrepareFormation>(asked).size(), 2u);
  const Effects bound = Complete(asked);
  ASSERT_EQ(Of<CallAnnounce>(bound).size(), 1u);
  const CallAnnounce announce = Of<CallAnnounce>(bound)[0];
  EXPECT_EQ(announce.instance, members_[0]);
  EXPECT_EQ(announce.request.formation, Of<CallPrepareFormation>(asked)[0].request.epoch);
  EXPECT_TRUE(announce.request.writers.empty());
  EXPECT_TRUE(Of<CallAssign>(bound).empty()) << "no prefill instance takes part";
  const std::vector<Planned> planned = Updates<Planned>(bound);
  ASSERT_EQ(planned.size(), 1u);
  EXPECT_EQ(planned[0].decode, members_[0]);
  const Effects opened = Do(TransferOpened{members_[0], {7, 1}, announce.request.epoch});
  EXPECT_EQ(Updates<Placed>(opened).at(0).decode, members_[0]);
  EXPECT_EQ(StateOf(1), "placed");
  const PlanExplanation plan = core_->Explain(ToString(RequestId{7, 1}), now_).at(0).plans.back();
  EXPECT_EQ(plan.formation, 2);
  EXPECT_NE(plan.how.find("74 tokens fit no instance alone; the largest takes 40"),
            std::string::npos)
      << plan.how;
  // It stays bound while the request runs, whatever the dwell.
  held_[members_[0]] = {{.id = {7, 1}, .epoch = announce.request.epoch, .opened = true}};
  for (int i = 0; i < 60; ++i) EXPECT_TRUE(Of<CallEndFormation>(ReportAll()).empty());
  // And is released after it.
  held_.clear();
  EXPECT_EQ(Updates<PlanEnded>(Ended(announce, absl::OkStatus())).size(), 1u);
  EXPECT_EQ(StateOf(1), "");
  Effects released;
  for (int i = 0; i < 12 && Of<CallEndFormation>(released).empty(); ++i) released = ReportAll();
  EXPECT_EQ(Of<CallEndFormation>(released).size(), 1u);
}

TEST_F(LongRequestsTest, EachFormationThatRunsOneStaysBound) {
  UpGroup();
  Submit(1, 70);
  const CallAnnounce first = Of<CallAnnounce>(Complete(ReportAll())).at(0);
  Complete(Order(Act::kBind, {members_[2], members_[3]}));
  const CallAnnounce second = Of<CallAnnounce>(Submit(2, 70)).at(0);
  EXPECT_NE(first.instance, second.instance);
  Runs(first);
  Runs(second);
  Order(Act::kUnpin, {}, "m@a");
  Submit(3, 150);
  for (const InstanceId member : members_) running_[member] = 20;  // a burst
  for (int i = 0; i < 60; ++i) EXPECT_TRUE(Of<CallEndFormation>(ReportAll()).empty());
  EXPECT_EQ(StateOf(3), "grouping") << "it waits for both";
  held_.clear();
  Ended(first, absl::OkStatus());
  Ended(second, absl::OkStatus());
  EXPECT_EQ(Of<CallEndFormation>(ReportAll()).size(), 2u);
}

TEST_F(LongRequestsTest, TheOneThatRunsItStaysBoundWhenAnotherInstanceLeaves) {
  UpGroup();
  Complete(Order(Act::kBind, {members_[2], members_[3]}));
  const CallAnnounce announce = Of<CallAnnounce>(Submit(1, 70)).at(0);
  Runs(announce);
  Order(Act::kUnpin, {}, "m@a");
  Do(UnregisterCalled{Call(), {members_[0], {incarnation_of_[members_[0]]}}});
  members_.erase(members_.begin());
  for (const CallGroup& order : Of<CallGroup>(Until(now_ + kSecondUs))) {
    made_[order.instance] = order.request.generation;
  }
  for (int i = 0; i < 60; ++i) EXPECT_TRUE(Of<CallEndFormation>(ReportAll()).empty());
  EXPECT_EQ(StateOf(1), "placed");
  EXPECT_EQ(Of<CallEndFormation>(Order(Act::kRelease, {}, "m@a")).size(), 1u);
}

TEST_F(LongRequestsTest, ARequestThatJustFitsAnInstanceGoesToIt) {
  UpGroup();
  EXPECT_EQ(Of<CallAssign>(Submit(1, 36)).size(), 1u);
  EXPECT_EQ(StateOf(1), "assigning");
  EXPECT_TRUE(Of<CallAssign>(Submit(2, 37)).empty());
  EXPECT_EQ(StateOf(2), "grouping");
}

TEST_F(LongRequestsTest, OneLongerThanTheWidestGroupIsRefusedWithItsLimit) {
  UpGroup();
  EXPECT_EQ(FailureOf(Submit(1, 157)),
            "INVALID_ARGUMENT: prompt + max_tokens: 161 tokens fit no decode instance; the largest "
            "takes 40, their widest group, bound(4), takes 160");
  EXPECT_EQ(FailureOf(Submit(2, 156)), "");
  EXPECT_EQ(Of<CallPrepareFormation>(ReportAll()).size(), 4u);
  EXPECT_EQ(FailureOf(Submit(3, 50, 0)),
            "INVALID_ARGUMENT: prompt + max_tokens: 50 tokens fit no decode instance; the largest "
            "takes 40, their widest group, bound(4), takes 160; a group does not compute a prompt "
            "without output");
  want_prompt_logprobs_ = true;
  EXPECT_NE(FailureOf(Submit(4, 50)).find("a group does not compute logprobs of its prompt"),
            std::string::npos);
}

TEST_F(LongRequestsTest, WithoutAGroupTheLimitIsThatOfAnInstance) {
  UpGroup(1);
  EXPECT_EQ(FailureOf(Submit(1, 37)),
            "INVALID_ARGUMENT: prompt + max_tokens: 41 tokens fit no decode instance; the largest "
            "takes 40");
}

TEST_F(LongRequestsTest, WhereOnlyPeopleBindItIsRefusedUnlessTheyHave) {
  Make({.automatic = false});
  UpGroup();
  EXPECT_NE(FailureOf(Submit(1, 70)).find("none can be bound: formations are ordered by hand"),
            std::string::npos);
  Effects asked =
      Do(FormationCalled{Call(), {orchestrator::FormationOrder::Act::kBind, {}, "m@a", 4, {}}});
  EXPECT_EQ(FailureOf(Submit(2, 70)), "") << "it is being bound";
  EXPECT_EQ(Of<CallAnnounce>(Complete(asked)).size(), 1u);
  // Another one joins it at once.
  EXPECT_EQ(Of<CallAnnounce>(Submit(3, 150)).size(), 1u);
}

TEST_F(LongRequestsTest, PinsThatKeepAllInstancesAloneRefuseIt) {
  UpGroup();
  EXPECT_EQ(FailureOf(Submit(1, 70)), "");
  Do(FormationCalled{Call(), {orchestrator::FormationOrder::Act::kPin, {}, "m@a", 0, {}}});
  EXPECT_NE(FailureOf(Submit(2, 70)).find("instances of m@a are pinned by an operator"),
            std::string::npos);
  EXPECT_NE(FailureOf(ReportAll()).find("are pinned by an operator"), std::string::npos)
      << "the one that waits, too";
  EXPECT_EQ(StateOf(1), "");
}

// The only two that are left are pinned, but the two others could be bound with it.
TEST_F(LongRequestsTest, PinsDoNotRefuseItWhileAnInstanceMayComeBack) {
  UpGroup();
  Order(Act::kRelease, {members_[0], members_[1]});
  Leave(members_[3]);
  EXPECT_EQ(FailureOf(Submit(1, 70)), "");
  EXPECT_EQ(FailureOf(ReportAll()), "");
  UpGroup(1);
  const Effects asked = ReportAll();
  ASSERT_EQ(Of<CallPrepareFormation>(asked).size(), 2u);
  EXPECT_EQ(Of<CallPrepareFormation>(asked)[0].instance, members_[2]);
  EXPECT_EQ(Of<CallAnnounce>(Complete(asked)).size(), 1u);
}

TEST_F(LongRequestsTest, ItWaitsForThatInstanceNoLongerThanForOthers) {
  Make({.long_wait_us = 4 * kSecondUs});
  UpGroup();
  Order(Act::kRelease, {members_[0], members_[1]});
  Leave(members_[3]);
  Submit(1, 70);
  std::string failure;
  int seconds = 0;
  for (; seconds < 30 && failure.empty(); ++seconds) failure = FailureOf(ReportAll());
  EXPECT_EQ(seconds, 4);
  EXPECT_EQ(failure.substr(0, 11), "UNAVAILABLE");
  EXPECT_NE(failure.find("m@a are pinned by an operator, and 1 instance is not back yet"),
            std::string::npos)
      << failure;
}

TEST_F(LongRequestsTest, PinsRefuseItWhereNoInstanceThatComesBackWouldHelp) {
  UpGroup();
  Order(Act::kRelease, {members_[0], members_[1], members_[2]});
  Leave(members_[3]);
  EXPECT_NE(FailureOf(Submit(1, 70)).find("instances of m@a are pinned by an operator"),
            std::string::npos);
}

// It is the last of the order then, so no two that are not pinned can be bound.
TEST_F(LongRequestsTest, AnInstanceThatWasRestartedAtItsAddressIsNotWaitedFor) {
  UpGroup(5);
  Order(Act::kRelease, {members_[0], members_[1], members_[2]});
  WorkerIdentity identity = IdentityOf(Role::kDecode, ++incarnations_);
  identity.endpoint = "w:" + std::to_string(incarnation_of_[members_[3]]);
  const Effects effects = Do(RegisterCalled{Call(), {identity}});
  const InstanceId again = Of<AnswerRegister>(effects)[0].reply.instance;
  ASSERT_NE(again, members_[3]);
  incarnation_of_[again] = incarnations_;
  members_.erase(members_.begin() + 3);
  members_.push_back(again);
  UpGroup(0);
  const std::string failure = FailureOf(Submit(1, 70));
  EXPECT_EQ(failure.substr(0, 16), "INVALID_ARGUMENT") << failure;
  EXPECT_NE(failure.find("instances of m@a are pinned by an operator"), std::string::npos)
      << failure;
}

TEST_F(LongRequestsTest, ItFailsWhenEveryBindFails) {
  UpGroup();
  Submit(1, 70);
  std::string failure;
  int binds = 0;
  for (int i = 0; i < 60 && failure.empty(); ++i) {
    Effects effects = ReportAll();
    failure = FailureOf(effects);
    const auto asked = Of<CallPrepareFormation>(effects);
    if (asked.empty()) continue;
    ++binds;
    for (const auto& one : asked) {
      Tell(one.instance, one.request.epoch, Phase::kEnded, absl::InternalError("no memory"));
    }
  }
  EXPECT_GT(binds, 2);
  EXPECT_NE(failure.find("UNAVAILABLE: prompt + max_tokens: 74 tokens fit no decode instance"),
            std::string::npos)
      << failure;
  EXPECT_NE(failure.find("none can be bound: the last bind of m@a failed: "), std::string::npos)
      << failure;
  EXPECT_NE(failure.find("no memory"), std::string::npos) << failure;
}

TEST_F(LongRequestsTest, ItFailsWhenNoCommunicatorsAreMade) {
  for (int i = 0; i < 2; ++i) members_.push_back(Up(Role::kDecode));
  Submit(1, 50);
  EXPECT_EQ(StateOf(1), "grouping");
  std::string failure;
  for (int i = 0; i < 30 && failure.empty(); ++i) failure = FailureOf(ReportAll());
  EXPECT_NE(failure.find("has not made the group's communicators yet"), std::string::npos)
      << failure;
}

TEST_F(LongRequestsTest, WhatTheLeadDoesNotTakeIsPlannedAgainElsewhere) {
  UpGroup();
  Submit(1, 70);
  const Effects asked = ReportAll();
  const CallAnnounce announce = Of<CallAnnounce>(Complete(asked)).at(0);
  // It was released there meanwhile.
  const Effects refused = Ended(announce, absl::UnavailableError("formation: no group is bound"));
  EXPECT_TRUE(Of<CallAnnounce>(refused).empty()) << "not under the same formation";
  EXPECT_EQ(Updates<Planned>(refused).size(), 1u) << "its router hears of another epoch";
  EXPECT_EQ(StateOf(1), "grouping");
  for (const size_t i : {0, 1}) Tell(members_[i], announce.request.formation, Phase::kEnded);
  now_ += 2 * kSecondUs;
  const Effects again = Complete(ReportAll());
  ASSERT_EQ(Of<CallAnnounce>(again).size(), 1u);
  EXPECT_GT(Of<CallAnnounce>(again)[0].request.epoch, announce.request.epoch);
  // What can never be computed there fails.
  EXPECT_NE(FailureOf(Ended(Of<CallAnnounce>(again)[0], absl::ResourceExhaustedError("KV blocks")))
                .find("KV blocks"),
            std::string::npos);
}

TEST_F(LongRequestsTest, WhatTheLeadRefusesFailsWhenNothingElseIsBoundForIt) {
  UpGroup();
  Submit(1, 70);
  const CallAnnounce announce = Of<CallAnnounce>(Complete(ReportAll())).at(0);
  Ended(announce, absl::UnavailableError("no place"));
  std::string failure;
  for (int i = 0; i < 30 && failure.empty(); ++i) failure = FailureOf(ReportAll());
  const std::string lead = std::to_string(announce.instance.value);
  EXPECT_NE(failure.find("bound(2), led by instance " + lead + ", did not take it"),
            std::string::npos)
      << failure;
}

TEST_F(LongRequestsTest, WhenItsRouterDidNotAttachItIsPlannedAgainUnderTheSameFormation) {
  UpGroup();
  Submit(1, 70);
  const CallAnnounce announce = Of<CallAnnounce>(Complete(ReportAll())).at(0);
  Runs(announce);
  held_.clear();
  EndedRequest ended = {announce.request.spec->id, announce.request.epoch, FinishReason::kError,
                        absl::UnavailableError("no router came")};
  ended.unclaimed = true;
  Effects effects = Report(announce.instance, {}, {ended});
  for (int i = 0; i < 3 && Of<CallAnnounce>(effects).empty(); ++i) effects = ReportAll();
  ASSERT_EQ(Of<CallAnnounce>(effects).size(), 1u);
  EXPECT_EQ(Of<CallAnnounce>(effects)[0].request.formation, announce.request.formation);
  EXPECT_GT(Of<CallAnnounce>(effects)[0].request.epoch, announce.request.epoch);
}

TEST_F(LongRequestsTest, WhenItsLeadIsLostItIsPlannedAgainUnlessItRuns) {
  UpGroup();
  Submit(1, 70);
  Complete(ReportAll());
  Do(UnregisterCalled{Call(), {members_[0], {incarnation_of_[members_[0]]}}});
  EXPECT_EQ(StateOf(1), "grouping");
  Do(UnregisterCalled{Call(), {members_[1], {incarnation_of_[members_[1]]}}});
  members_.erase(members_.begin(), members_.begin() + 2);
  for (const CallGroup& order : Of<CallGroup>(Until(now_ + 2 * kSecondUs))) {
    made_[order.instance] = order.request.generation;
  }
  Effects announced;
  for (int i = 0; i < 5 && Of<CallAnnounce>(announced).empty(); ++i) {
    announced = Complete(ReportAll());
  }
  const CallAnnounce announce = Of<CallAnnounce>(announced).at(0);
  Do(TransferOpened{announce.instance, {7, 1}, announce.request.epoch});
  const Effects lost = Do(UnregisterCalled{Call(), {members_[0], {incarnation_of_[members_[0]]}}});
  EXPECT_NE(FailureOf(lost).find("has left"), std::string::npos) << "tokens may have been sent";
}

TEST_F(LongRequestsTest, CancelsAndDeadlinesEndItWherever) {
  UpGroup();
  Submit(1, 70);
  Do(Closed({7, 1}));
  EXPECT_EQ(StateOf(1), "");
  EXPECT_TRUE(Of<CallPrepareFormation>(ReportAll()).empty()) << "nothing needs a group";
  Submit(2, 70);
  const CallAnnounce announce = Of<CallAnnounce>(Complete(ReportAll())).at(0);
  const Effects closed = Do(Closed({7, 2}));
  ASSERT_EQ(Of<CallCancel>(closed).size(), 1u);
  EXPECT_EQ(Of<CallCancel>(closed)[0].instance, announce.instance);
  deadline_us_ = 2 * kSecondUs;
  Submit(3, 150);
  EXPECT_EQ(StateOf(3), "grouping") << "bound(2) does not hold it";
  EXPECT_EQ(FailureOf(Until(now_ + 2 * kSecondUs)),
            "DEADLINE_EXCEEDED: the request's deadline passed");
}

TEST_F(LongRequestsTest, ALargerInstanceThatComesTakesItAlone) {
  UpGroup(2);
  Submit(1, 70);
  EXPECT_EQ(StateOf(1), "grouping");
  WorkerIdentity identity = IdentityOf(Role::kDecode, 99);
  identity.total_blocks = 100;
  identity.node = "";
  EXPECT_EQ(Of<CallAssign>(Do(RegisterCalled{Call(), {identity}})).size(), 1u);
  EXPECT_EQ(StateOf(1), "assigning");
}

TEST_F(LongRequestsTest, UnderASuccessorItIsSubmittedAnewAndWaits) {
  accepted_ = true;
  UpGroup();
  Submit(1, 70);
  EXPECT_EQ(StateOf(1), "grouping");
  EXPECT_EQ(Of<CallAnnounce>(Complete(ReportAll())).size(), 1u);
}

// Not all instances have registered at the successor yet.
TEST_F(LongRequestsTest, UnderASuccessorItWaitsForInstancesThatAreNotBackYet) {
  UpGroup(1);
  EXPECT_NE(FailureOf(Submit(1, 70)), "");
  accepted_ = true;
  EXPECT_EQ(FailureOf(Submit(2, 70)), "");
  EXPECT_EQ(FailureOf(ReportAll()), "");
  UpGroup(3);
  EXPECT_EQ(Of<CallAnnounce>(Complete(ReportAll())).size(), 1u);
}

TEST_F(LongRequestsTest, ItWaitsForAnInstanceThatIsRestarted) {
  UpGroup();
  Submit(1, 150);
  Do(UnregisterCalled{Call(), {members_[3], {incarnation_of_[members_[3]]}}});
  members_.pop_back();
  UpGroup(0);
  EXPECT_EQ(FailureOf(ReportAll()), "");
  EXPECT_EQ(StateOf(1), "grouping");
  EXPECT_EQ(FailureOf(Submit(2, 150)), "") << "a new one, too";
  EXPECT_NE(FailureOf(Submit(3, 157)).find("bound(4), takes 160"), std::string::npos);
  UpGroup(1);
  EXPECT_EQ(Of<CallAnnounce>(Complete(ReportAll())).size(), 2u);
}

TEST_F(LongRequestsTest, ItFailsWhenTheInstanceDoesNotComeBack) {
  UpGroup();
  Submit(1, 150);
  Do(UnregisterCalled{Call(), {members_[3], {incarnation_of_[members_[3]]}}});
  members_.pop_back();
  UpGroup(0);
  std::string failure;
  for (int i = 0; i < 30 && failure.empty(); ++i) failure = FailureOf(ReportAll());
  EXPECT_EQ(failure.substr(0, 11), "UNAVAILABLE");
  EXPECT_NE(failure.find("m@a has too few instances now"), std::string::npos) << failure;
}

TEST_F(LongRequestsTest, InstancesThatHaveLeftForGoodCountNoMore) {
  Make({}, /*gone_kept_us=*/60 * kSecondUs);
  UpGroup();
  Leave(members_[3]);
  for (int i = 0; i < 50; ++i) ReportAll();
  EXPECT_EQ(FailureOf(Submit(1, 150)), "") << "it may come back";
  for (int i = 0; i < 20; ++i) ReportAll();
  EXPECT_EQ(FailureOf(Submit(2, 150)),
            "INVALID_ARGUMENT: prompt + max_tokens: 154 tokens fit no decode instance; the largest "
            "takes 40, their widest group, bound(2), takes 80");
  EXPECT_EQ(FailureOf(Submit(3, 70)), "");
  UpGroup(1);
  EXPECT_EQ(FailureOf(Submit(4, 150)), "") << "it is back";
}

TEST_F(LongRequestsTest, SoDoThoseThatAreDrained) {
  Make({}, /*gone_kept_us=*/60 * kSecondUs);
  UpGroup();
  Do(DrainCalled{Call(), {.instance = members_[3]}});
  for (int i = 0; i < 50; ++i) ReportAll();
  EXPECT_EQ(FailureOf(Submit(1, 150)), "");
  for (int i = 0; i < 20; ++i) ReportAll();
  EXPECT_NE(FailureOf(Submit(2, 150)).find("bound(2), takes 80"), std::string::npos);
  Do(DrainCalled{Call(), {.instance = members_[3], .undo = true}});
  EXPECT_EQ(FailureOf(Submit(3, 150)), "");
}

// As those of unequal pools never are.
TEST_F(LongRequestsTest, InstancesThatCanBeBoundAreChosenForIt) {
  decode_blocks_ = 8;
  UpGroup(1);
  decode_blocks_ = 10;
  UpGroup(3);
  EXPECT_NE(FailureOf(Submit(1, 150)).find("their widest group, bound(2), takes 80"),
            std::string::npos);
  EXPECT_EQ(FailureOf(Submit(2, 50)), "");
  const Effects asked = ReportAll();
  ASSERT_EQ(Of<CallPrepareFormation>(asked).size(), 2u);
  EXPECT_EQ(Of<CallPrepareFormation>(asked)[0].instance, members_[2]);
  EXPECT_EQ(Of<CallAnnounce>(Complete(asked)).size(), 1u);
}

TEST_F(LongRequestsTest, AnInstanceThatMayHoldAnUnknownFormationIsNotChosenForIt) {
  UpGroup();
  Tell(members_[0], 4'000'000, Phase::kBound);
  EXPECT_EQ(FailureOf(Submit(1, 70)), "");
  const Effects asked = ReportAll();
  ASSERT_EQ(Of<CallPrepareFormation>(asked).size(), 2u);
  EXPECT_EQ(Of<CallPrepareFormation>(asked)[0].instance, members_[2]);
  EXPECT_EQ(FailureOf(Submit(2, 150)), "");
  std::string failure;
  for (int i = 0; i < 30 && failure.empty(); ++i) failure = FailureOf(ReportAll());
  EXPECT_NE(failure.find("has not told the end of epoch 4000000"), std::string::npos) << failure;
}

TEST_F(LongRequestsTest, AReportLooksAtFewOfThoseThatWait) {
  UpGroup();
  const auto looks_of = [&](InstanceId instance) {
    const int64_t before = looks;
    Report(instance);
    return looks - before;
  };
  Submit(1, 70);
  const int64_t of_prefill = looks_of(prefill_), of_decode = looks_of(members_[0]);
  for (uint64_t serial = 2; serial <= 30; ++serial) Submit(serial, 70);
  EXPECT_EQ(core_->Totals().waiting, 30);
  EXPECT_EQ(looks_of(prefill_), of_prefill);
  EXPECT_EQ(looks_of(members_[0]), of_decode)
      << "the first has found no lead, and no other is shorter";
}

// ---- urgent requests ----

class UrgentTest : public LongRequestsTest {
 protected:
  UrgentTest() {
    orchestrator::FormationConfig config;
    config.profiles["m"].gains = {{2, 1.6}};
    config.policy.bind_sequences = 0;  // load binds nothing while something runs
    config.policy.dedicated_priority = 2;
    Make(config);
    UpGroup();
    for (const InstanceId member : members_) running_[member] = 2;
    for (int i = 0; i < 12; ++i) Complete(ReportAll());
    ReleaseAll();
  }
  void ReleaseAll() {
    for (int i = 0; i < 30; ++i) {
      for (const CallEndFormation& end : Of<CallEndFormation>(ReportAll())) {
        for (const InstanceId member : members_) Tell(member, end.request.epoch, Phase::kEnded);
      }
    }
    EXPECT_EQ(Formations(), (std::vector<std::string>{"independent"}));
  }
};

TEST_F(UrgentTest, GetADedicatedGroupThatOthersKeepOff) {
  Submit(1, 4, 4, /*priority=*/1);
  EXPECT_TRUE(Of<CallPrepareFormation>(ReportAll()).empty()) << "it is not urgent";
  Submit(2, 4, 4, /*priority=*/2);
  const Effects asked = ReportAll();
  ASSERT_EQ(Of<CallPrepareFormation>(asked).size(), 2u);
  Complete(asked);
  const InstanceId lead = Of<CallPrepareFormation>(asked)[0].instance;
  std::string why;
  for (const GroupStatus& one : core_->Snapshot(now_).groups) why += one.why;
  EXPECT_NE(why.find("a request of priority -2 gets a bound group"), std::string::npos) << why;
  for (uint64_t serial = 3; serial < 9; ++serial) {
    const bool urgent = serial % 2 == 0;
    const Effects effects = Submit(serial, 4, 4, urgent ? 3 : 0);
    const CallAnnounce announce = Of<CallAnnounce>(effects).at(0);
    EXPECT_EQ(announce.instance == lead, urgent) << serial;
    EXPECT_EQ(announce.request.formation != 0, urgent);
  }
  for (uint64_t serial = 1; serial < 9; ++serial) Do(Closed({7, serial}));
  ReleaseAll();
}

// Own sequences that do not end keep no urgent request waiting twice.
TEST_F(UrgentTest, ABindThatFailedIsFollowedByOneThatDoesNotWait) {
  using Own = OwnSequences;
  Submit(1, 4, 4, /*priority=*/2);
  for (const Own own : {Own::kSoftPreempt, Own::kHardPreempt, Own::kHardPreempt}) {
    std::vector<CallPrepareFormation> asked;
    for (int i = 0; i < 10 && asked.empty(); ++i) asked = Of<CallPrepareFormation>(ReportAll());
    ASSERT_EQ(asked.size(), 2u);
    for (const CallPrepareFormation& one : asked) EXPECT_EQ(one.request.own, own);
    for (const CallPrepareFormation& one : asked) {
      Tell(one.instance, one.request.epoch, Phase::kEnded, absl::AbortedError("too slow"));
    }
  }
  Do(Closed({7, 1}));
}

TEST_F(UrgentTest, TheirGroupIsKeptForAWhileAfterTheLast) {
  Submit(1, 4, 4, /*priority=*/2);
  const Effects asked = ReportAll();
  ASSERT_EQ(Of<CallPrepareFormation>(asked).size(), 2u);
  Complete(asked);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(Of<CallEndFormation>(ReportAll()).empty());
  Do(Closed({7, 1}));
  // 14 s after the bind, 9 s after the last urgent request.
  for (int i = 0; i < 9; ++i) EXPECT_TRUE(Of<CallEndFormation>(ReportAll()).empty()) << i;
  std::vector<CallEndFormation> ended;
  for (int i = 0; i < 20 && ended.empty(); ++i) ended = Of<CallEndFormation>(ReportAll());
  EXPECT_EQ(ended.size(), 1u);
}

TEST_F(UrgentTest, GetTheFirstGroupThatCanBeBoundAndItKeepsThem) {
  node_ = "b";
  UpGroup();
  for (const InstanceId member : members_) running_[member] = 2;
  Order(Act::kPin, {}, "m@a");
  Submit(1, 4, 4, /*priority=*/2);
  const Effects asked = ReportAll();
  ASSERT_EQ(Of<CallPrepareFormation>(asked).size(), 2u);
  for (const CallPrepareFormation& one : Of<CallPrepareFormation>(asked)) {
    EXPECT_GE(one.instance, members_[4]);
  }
  Complete(asked);
  Order(Act::kUnpin, {}, "m@a");
  for (int i = 0; i < 3; ++i) {
    const Effects effects = ReportAll();
    EXPECT_TRUE(Of<CallPrepareFormation>(effects).empty()) << "no second group is bound for it";
    EXPECT_TRUE(Of<CallEndFormation>(effects).empty());
  }
}

}  // namespace
}  // namespace skein::scheduler
