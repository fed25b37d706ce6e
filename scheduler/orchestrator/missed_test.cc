// The network between the orchestrator and a decode instance is cut, and routers still hear the
// instance: it is missed, not lost.
#include "scheduler/orchestrator/testing/plain_testing.h"

namespace skein::scheduler {
namespace {

class MissedTest : public OrchestratorCoreTest {
 protected:
  MissedTest() {
    prefill_ = Up(Role::kPrefill, 1);
    for (uint64_t i = 2; i <= 3; ++i) {
      const InstanceId id = Up(Role::kDecode, i);
      alive_[id] = i;
    }
    alive_[prefill_] = 1;
    RouterConnects(7);
  }

  Effects RouterReports(const std::vector<InstanceId>& heard,
                        const std::vector<InstanceId>& not_heard = {}) {
    RouterLoad load;
    for (const InstanceId id : heard) load.heard.push_back(ProcessOf(id));
    for (const InstanceId id : not_heard) load.not_heard.push_back(ProcessOf(id));
    return Do(RouterReported{router_stream_, load});
  }
  // The router's stream begins anew.
  void RouterSaysHello(const RouterLoad& load) {
    RouterHello hello;
    hello.identity = {.router = 7, .endpoint = "r:7", .host = "h"};
    hello.load = load;
    hello.requests = {{.id = {7, 1}}};
    router_stream_ = Call();
    Do(RouterConnected{router_stream_, hello});
  }
  Incarnation ProcessOf(InstanceId id) {
    const auto it = alive_.find(id);
    return {it == alive_.end() ? silent_incarnation_ : it->second};
  }
  // Time passes; all but the silent one report.
  Effects Pass(int seconds) {
    Effects all;
    for (int i = 0; i < seconds; ++i) {
      for (const auto& [id, incarnation] : alive_) Append(Report(id, incarnation), &all);
      if (router_alive_) Append(RouterReports({}), &all);
      Append(Until(now_ + kSecondUs), &all);
    }
    return all;
  }
  // A request whose answer streams, at the instance that falls silent then.
  CallAssign StreamAtTheSilent(uint64_t serial = 1) {
    const CallAssign assign = Place(serial);
    silent_ = assign.request.placed->decode;
    Report(prefill_, 1, {}, {Committed(assign)});
    silent_incarnation_ = alive_.at(silent_);
    alive_.erase(silent_);
    return assign;
  }
  // Its stream breaks, and another one begins.
  Effects ConnectAgain(std::vector<HeldRequest> held, std::vector<EndedRequest> ended = {}) {
    WorkerIdentity identity = StatusOf(silent_).identity;
    return Do(RegisterCalled{Call(), {identity, std::move(held), std::move(ended)}});
  }
  static EndedRequest Committed(const CallAssign& assign) {
    return {.id = assign.request.spec->id, .epoch = assign.request.epoch, .status = {}};
  }
  InstanceStatus StatusOf(InstanceId id) {
    for (const InstanceStatus& one : core_->Snapshot(now_).instances) {
      if (one.instance == id) return one;
    }
    return {};
  }
  uint64_t Lost() { return core_->Totals().instances_lost; }
  static void Append(Effects effects, Effects* to) {
    for (OrchestratorEffect& effect : effects) to->push_back(std::move(effect));
  }

  InstanceId prefill_;
  InstanceId silent_;
  uint64_t silent_incarnation_ = 0;
  bool router_alive_ = true;
  std::map<InstanceId, uint64_t> alive_;  // by id: the incarnation
};

TEST_F(MissedTest, ItKeepsItsRequestsAndGetsNoNewOnesUntilItReports) {
  StreamAtTheSilent();
  RouterReports({silent_});
  EXPECT_TRUE(Ends(Pass(12)).empty());
  EXPECT_EQ(Lost(), 0u);
  EXPECT_EQ(core_->Totals().misses, 1u);
  EXPECT_EQ(core_->Totals().models.at("m").missed, 1);
  EXPECT_EQ(core_->Totals().replans, 0u);
  EXPECT_TRUE(StatusOf(silent_).missed);
  EXPECT_FALSE(StatusOf(silent_).placeable);
  EXPECT_EQ(StatusOf(silent_).heard_by, 1);
  EXPECT_EQ(core_->StateOf({7, 1}), "placed");
  for (uint64_t serial = 2; serial <= 4; ++serial) {
    EXPECT_NE(Place(serial).request.placed->decode, silent_);
  }
  Report(silent_, silent_incarnation_, {{{7, 1}, {}, true}});
  EXPECT_FALSE(StatusOf(silent_).missed);
  EXPECT_TRUE(StatusOf(silent_).placeable);
  EXPECT_EQ(core_->Totals().models.at("m").missed, 0);
}

TEST_F(MissedTest, ItIsLostWhenNoRouterHearsItAnyMore) {
  StreamAtTheSilent();
  RouterReports({silent_});
  Pass(6);
  ASSERT_EQ(Lost(), 0u);
  RouterReports({}, {silent_});
  const auto failed = Updates<Failed>(Until(now_ + kSecondUs / 2));
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(failed[0].status)) << failed[0].status;
  EXPECT_EQ(Lost(), 1u);
  EXPECT_EQ(StatusOf(silent_).instance, InstanceId{});
  RouterReports({silent_});  // of an instance that is known no more: fine
}

// What a router said before it was lost or left is worth nothing.
TEST_F(MissedTest, ARouterTakesItsEvidenceWithIt) {
  StreamAtTheSilent();
  RouterReports({silent_});
  Pass(6);
  ASSERT_EQ(Lost(), 0u);
  router_alive_ = false;
  Pass(3);
  EXPECT_EQ(core_->Snapshot(now_).routers.size(), 0u);
  Pass(1);
  EXPECT_EQ(Lost(), 1u);
}

TEST_F(MissedTest, ARouterThatConnectsAgainSaysAllThatItHears) {
  StreamAtTheSilent();
  RouterReports({silent_});
  RouterSaysHello({.not_heard = {ProcessOf(silent_)}});
  Pass(4);
  EXPECT_EQ(Lost(), 1u);
}

// A new orchestrator gives instances new numbers, and routers may come back to it before workers.
TEST_F(MissedTest, WhatARouterHearsCountsForAnInstanceThatRegistersAfterwards) {
  constexpr uint64_t kIncarnation = 4;
  RouterSaysHello({.heard = {{kIncarnation}}});
  Pass(1);
  silent_ = Up(Role::kDecode, kIncarnation);
  Pass(6);
  EXPECT_EQ(Lost(), 0u);
  EXPECT_TRUE(StatusOf(silent_).missed);
  EXPECT_EQ(StatusOf(silent_).heard_by, 1);
}

// One that was given up comes back under another number. Routers have told that they hear it, and
// tell only changes.
TEST_F(MissedTest, WhatARouterHearsOutlivesTheInstancesNumber) {
  StreamAtTheSilent();
  Pass(4);
  ASSERT_EQ(Lost(), 1u);
  RouterReports({silent_});
  const InstanceId back = Join(Role::kDecode, silent_incarnation_).instance;
  ASSERT_NE(back, silent_);
  silent_ = back;
  Pass(6);
  EXPECT_TRUE(StatusOf(silent_).missed);
}

// No evidence is taken of these: their requests have no token streams.
TEST_F(MissedTest, APrefillInstanceIsLostAsEver) {
  alive_.erase(prefill_);
  RouterReports({prefill_});
  Pass(4);
  EXPECT_EQ(Lost(), 1u);
  EXPECT_EQ(core_->Totals().misses, 0u);
}

// Its TransferOpened does not arrive; the writer's report says the same.
TEST_F(MissedTest, AHandoffToItContinuesOnTheWritersReport) {
  StreamAtTheSilent();
  alive_[silent_] = silent_incarnation_;
  CallAssign assign;
  uint64_t serial = 2;
  do {  // until one is placed there
    assign = Submit(serial++);
  } while (assign.request.placed->decode != silent_);
  alive_.erase(silent_);
  RouterReports({silent_});
  for (int third = 0; third < 12; ++third) {
    HeldRequest held{.id = assign.request.spec->id, .epoch = assign.request.epoch};
    EXPECT_TRUE(Updates<Placed>(Report(prefill_, 1, {held})).empty());
    RouterReports({});
    for (const auto& [id, incarnation] : alive_) {
      if (id != prefill_) Report(id, incarnation);
    }
    Until(now_ + kSecondUs);
  }
  ASSERT_TRUE(StatusOf(silent_).missed);
  const HeldRequest held{
      .id = assign.request.spec->id, .epoch = assign.request.epoch, .opened = true};
  const auto placed = Updates<Placed>(Report(prefill_, 1, {held}));
  ASSERT_EQ(placed.size(), 1u);
  EXPECT_EQ(placed[0].decode, silent_);
  EXPECT_EQ(placed[0].epoch, assign.request.epoch);
  EXPECT_EQ(core_->Totals().replans, 0u);
}

TEST_F(MissedTest, AWriterThatCommittedBetweenTwoReportsHadOpenedTheTransfer) {
  const CallAssign assign = Submit(1);
  const Effects effects = Report(prefill_, 1, {}, {Committed(assign)});
  ASSERT_EQ(Updates<Placed>(effects).size(), 1u);
  EXPECT_EQ(core_->StateOf({7, 1}), "placed");
}

// The router was told a moment ago, and had no time to say what it hears.
TEST_F(MissedTest, ARouterHasTheTimeToAttach) {
  const CallAssign assign = Submit(1);
  silent_ = assign.request.placed->decode;
  alive_.erase(silent_);
  Pass(2);
  Until(now_ + kSecondUs * 9 / 10);
  Report(prefill_, 1, {}, {Committed(assign)});
  Until(now_ + kSecondUs);
  EXPECT_EQ(Lost(), 0u) << "its lease of 3 s was over before";
  Until(now_ + kSecondUs);
  EXPECT_EQ(StatusOf(silent_).instance, InstanceId{}) << "no router said that it hears it";
}

TEST_F(MissedTest, WhatEndedForItsClientMeanwhileIsCancelledWhenItComesBack) {
  const CallAssign first = StreamAtTheSilent();
  RouterReports({silent_});
  Pass(4);
  ASSERT_TRUE(StatusOf(silent_).missed);
  Do(Closed({7, 1}));
  EXPECT_EQ(core_->StateOf({7, 1}), "");
  EXPECT_EQ(StatusOf(silent_).placed_requests, 0);
  const auto back = Of<AnswerRegister>(ConnectAgain({{{7, 1}, first.request.epoch, true}}));
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0].reply.instance, silent_);
  ASSERT_EQ(back[0].reply.cancel.size(), 1u);
  EXPECT_EQ(back[0].reply.cancel[0].id, (RequestId{7, 1}));
  EXPECT_TRUE(StatusOf(silent_).placeable);
}

TEST_F(MissedTest, WhatStreamedOnIsStillItsWhenItComesBack) {
  const CallAssign first = StreamAtTheSilent();
  RouterReports({silent_});
  Pass(4);
  const Effects effects = ConnectAgain({{{7, 1}, first.request.epoch, true}});
  EXPECT_TRUE(Of<AnswerRegister>(effects)[0].reply.cancel.empty());
  EXPECT_TRUE(Ends(effects).empty());
  EXPECT_EQ(core_->StateOf({7, 1}), "placed");
}

// It may be missed for as long as its answers are.
TEST_F(MissedTest, WhereAllAreMissedNothingNewIsAccepted) {
  StreamAtTheSilent();
  RouterReports({silent_});
  const InstanceId other =
      alive_.rbegin()->first == prefill_ ? alive_.begin()->first : alive_.rbegin()->first;
  const uint64_t incarnation = alive_.at(other);
  RouterReports({other});
  alive_.erase(other);
  Pass(4);
  ASSERT_EQ(core_->Totals().models.at("m").missed, 2);
  const auto failed = Updates<Failed>(Do(SubmitCalled{Spec(9)}));
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_TRUE(absl::IsUnavailable(failed[0].status));
  Report(other, incarnation);
  EXPECT_EQ(Place(10).request.placed->decode, other);
}

}  // namespace
}  // namespace skein::scheduler
