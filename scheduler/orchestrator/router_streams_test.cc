// Streams of routers that break, routers that come back as another process, and orchestrators that
// follow one another.
#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

class RouterStreamsTest : public PlanningTest {
 protected:
  RouterStreamsTest() {
    Make("tetris");
    prefill_ = UpPrefill(4);
    decode_ = Up(Role::kDecode, 9);
    RouterConnects(7);
  }
  // Breaks the router's stream; it opens another one and lists these requests.
  Effects Again(std::vector<RouterRequest> requests) {
    Do(RouterDisconnected{router_stream_});
    return RouterConnects(7, std::move(requests));
  }
  static std::vector<RequestId> Unknown(const Effects& effects) {
    return Of<WelcomeRouter>(effects).at(0).welcome.unknown;
  }

  std::vector<InstanceId> prefill_;
  InstanceId decode_;
};

TEST_F(RouterStreamsTest, ABrokenStreamCancelsNothing) {
  Place(1, 4000);
  const Effects broken = Do(RouterDisconnected{router_stream_});
  EXPECT_TRUE(Of<CallCancel>(broken).empty());
  EXPECT_EQ(core_->StateOf({7, 1}), "placed");
}

TEST_F(RouterStreamsTest, WhatIsNotListedIsCancelled) {
  Place(1, 4000);
  Place(2, 8);
  const Effects effects = Again({{.id = {7, 2}}});
  EXPECT_FALSE(Of<CallCancel>(effects).empty());
  for (const CallCancel& cancel : Of<CallCancel>(effects)) {
    EXPECT_EQ(cancel.request.id, (RequestId{7, 1}));
  }
  EXPECT_EQ(core_->StateOf({7, 1}), "");
  EXPECT_EQ(core_->StateOf({7, 2}), "placed");
}

TEST_F(RouterStreamsTest, HowTheListedStandIsToldAgain) {
  const CallAssign placed = Place(1, 4000).at(0);
  const CallAssign assigned = Of<CallAssign>(Submit(2, 8)).at(0);
  const Effects effects = Again({{.id = {7, 1}}, {.id = {7, 2}}});
  EXPECT_TRUE(Unknown(effects).empty());
  ASSERT_EQ(Updates<Planned>(effects).size(), 2u);
  EXPECT_EQ(Updates<Planned>(effects)[0].epoch, placed.request.epoch);
  EXPECT_EQ(Updates<Planned>(effects)[1].epoch, assigned.request.epoch);
  ASSERT_EQ(Updates<scheduler::Placed>(effects).size(), 1u);
  EXPECT_EQ(Updates<scheduler::Placed>(effects)[0].decode, decode_);
  EXPECT_TRUE(Of<CallCancel>(effects).empty());
}

TEST_F(RouterStreamsTest, WhatTheOrchestratorDoesNotKnowIsNamed) {
  const auto unknown = Unknown(Again({{.id = {7, 50}, .epoch = {3}, .placed = true}}));
  EXPECT_EQ(unknown, (std::vector<RequestId>{{7, 50}}));
}

// A request that failed must not be planned a second time because the word was lost.
TEST_F(RouterStreamsTest, AFailureIsToldUntilTheRouterSaysThatItEnded) {
  auto spec = Spec(1, 8);
  spec->model = "unknown";
  EXPECT_EQ(Updates<Failed>(Do(SubmitCalled{spec})).size(), 1u);
  for (int i = 0; i < 2; ++i) {
    const Effects again = Again({{.id = {7, 1}}});
    EXPECT_TRUE(Unknown(again).empty());
    ASSERT_EQ(Updates<Failed>(again).size(), 1u);
    EXPECT_TRUE(absl::IsNotFound(Updates<Failed>(again)[0].status));
  }
  Do(RouterEnded{{.id = {7, 1}}});
  EXPECT_EQ(Unknown(Again({{.id = {7, 1}}})).size(), 1u);
}

TEST_F(RouterStreamsTest, ARepeatedSubmissionIsAnsweredWithTheState) {
  const CallAssign placed = Place(1, 8).at(0);
  const Effects again = Do(SubmitCalled{Spec(1, 8)});
  EXPECT_TRUE(Of<CallAssign>(again).empty());
  ASSERT_EQ(Updates<scheduler::Placed>(again).size(), 1u);
  EXPECT_EQ(Updates<scheduler::Placed>(again)[0].epoch, placed.request.epoch);
}

TEST_F(RouterStreamsTest, AnotherProcessAtItsAddressEndsAllOfItsRequests) {
  Place(1, 4000);
  Do(RouterDisconnected{router_stream_});
  RouterHello hello;
  hello.identity = {.router = 8, .endpoint = "r:7", .host = "h"};
  const Effects effects = Do(RouterConnected{Call(), hello});
  EXPECT_FALSE(Of<CallCancel>(effects).empty());
  EXPECT_EQ(core_->StateOf({7, 1}), "");
  EXPECT_EQ(core_->Snapshot(now_).routers.size(), 1u);
}

TEST_F(RouterStreamsTest, OneThatIsConnectedIsNotReplaced) {
  Place(1, 4000);
  RouterHello hello;
  hello.identity = {.router = 8, .endpoint = "r:7", .host = "h"};
  Do(RouterConnected{Call(), hello});
  EXPECT_EQ(core_->StateOf({7, 1}), "placed");
  EXPECT_EQ(core_->Snapshot(now_).routers.size(), 2u);
}

// Its decode instance sees whether the router lives.
TEST_F(RouterStreamsTest, ASilentRouterLosesWhatIsNotPlaced) {
  Place(1, 4000);
  const CallAssign assigned = Of<CallAssign>(Submit(2, 8)).at(0);
  Answer(assigned);
  std::vector<CallCancel> cancels;
  for (int i = 0; i < 8; ++i) {
    for (const InstanceId id : prefill_) Report(id);
    Report(decode_);
    for (const CallCancel& one : Of<CallCancel>(Until(now_ + kSecondUs / 2))) {
      cancels.push_back(one);
    }
  }
  ASSERT_FALSE(cancels.empty());
  EXPECT_EQ(cancels[0].instance, assigned.instance);
  for (const CallCancel& cancel : cancels) EXPECT_EQ(cancel.request.id, (RequestId{7, 2}));
  EXPECT_EQ(core_->StateOf({7, 1}), "placed");
  EXPECT_EQ(core_->StateOf({7, 2}), "");
  EXPECT_TRUE(Do(RouterDisconnected{router_stream_}).empty());
  EXPECT_EQ(Unknown(RouterConnects(7, {{.id = {7, 1}}, {.id = {7, 2}}})).size(), 1u);
}

TEST_F(RouterStreamsTest, ASecondStreamTakesThePlaceOfTheFirst) {
  const CallId former = router_stream_;
  const Effects effects = RouterConnects(7);
  ASSERT_EQ(Of<CloseRouter>(effects).size(), 1u);
  EXPECT_EQ(Of<CloseRouter>(effects)[0].call, former);
  EXPECT_TRUE(Do(RouterReported{former, {}}).empty());
}

TEST_F(RouterStreamsTest, WhoHasListenedToALaterOrchestratorIsFollowed) {
  const CallAssign placed = Place(1, 8).at(0);
  Do(RouterDisconnected{router_stream_});
  const Effects effects = RouterConnects(7, {{.id = {7, 1}}}, {.number = 6, .orchestrator = {5}});
  ASSERT_EQ(Of<StoreGeneration>(effects).size(), 1u);
  EXPECT_EQ(Of<StoreGeneration>(effects)[0].generation, 7u);
  EXPECT_EQ(Of<CloseWorker>(effects).size(), 5u) << "they listen to it under the new one only";
  const RouterWelcome welcome = Of<WelcomeRouter>(effects).at(0).welcome;
  EXPECT_EQ(welcome.generation.number, 7u);
  EXPECT_TRUE(welcome.unknown.empty());
  EXPECT_EQ(core_->StateOf({7, 1}), "placed");
  const Effects again = Connect(Role::kDecode, 9, "a", {Held(placed)});
  EXPECT_TRUE(Of<AnswerRegister>(again).at(0).reply.cancel.empty());
  EXPECT_EQ(Of<AnswerRegister>(again).at(0).reply.instance, decode_);
  EXPECT_EQ(Of<AnswerRegister>(again).at(0).reply.generation.number, 7u);
  for (const InstanceId id : prefill_) {
    Connect(Role::kPrefill, incarnations_[id].value);
    Report(id);
  }
  Report(decode_);
  EXPECT_TRUE(Of<CallAssign>(Submit(2, 8)).empty()) << "other instances may be on their way";
  const CallAssign next = Of<CallAssign>(Until(now_ + 2 * kSecondUs)).at(0);
  EXPECT_EQ(GenerationOf(next.request.epoch.value), 7u);
}

// One hello must not take the orchestrator to where every peer refuses its welcome.
TEST_F(RouterStreamsTest, TheLastGenerationIsNotFollowed) {
  constexpr uint64_t kLast = kGenerationMax - 1;
  const Effects router = RouterConnects(8, {}, {.number = kLast, .orchestrator = {5}});
  ASSERT_EQ(router.size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(Of<WelcomeRouter>(router).at(0).welcome.status));
  const Effects worker = Do(RegisterCalled{
      Call(),
      {.identity = Identity(Role::kDecode, 10), .seen = {.number = kLast, .orchestrator = {5}}}});
  ASSERT_EQ(worker.size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(Of<AnswerRegister>(worker).at(0).reply.status));
  EXPECT_EQ(core_->Totals().generation, 1u);
  const Effects before = RouterConnects(8, {}, {.number = kLast - 1, .orchestrator = {5}});
  const Generation now = Of<WelcomeRouter>(before).at(0).welcome.generation;
  EXPECT_EQ(now.number, kLast);
  EXPECT_TRUE(Of<WelcomeRouter>(RouterConnects(8, {}, now)).at(0).welcome.status.ok()) << "its own";
}

TEST_F(RouterStreamsTest, WhatIsSubmittedWhileTheInstancesComeBackWaits) {
  RouterConnects(7, {}, {.number = 6, .orchestrator = {5}});
  Submit(1, 8);
  Submit(2, 8);
  EXPECT_EQ(core_->Snapshot(now_).planning, 2);
  Do(Closed({7, 1}));
  EXPECT_EQ(Unknown(Again({{.id = {7, 2}}})).size(), 1u);
  Submit(2, 8);
  EXPECT_EQ(core_->Snapshot(now_).planning, 1);
  const Effects effects = Until(now_ + 2 * kSecondUs);  // nobody has come
  ASSERT_EQ(Updates<Failed>(effects).size() + Updates<Accepted>(effects).size(), 1u);
}

// Peers that look for it find it sooner than after half a lease. Where none has come by then, those
// that its predecessor left in silence are still to come.
TEST_F(RouterStreamsTest, ASuccessorThatIsLookedForSettlesWhenBothRolesHaveCome) {
  const OrchestratorConfig config{.generation = 2, .settle_us = 500 * kMillisecondUs};
  core_ = std::make_unique<OrchestratorCore>(config);
  Do(OrchestratorTick{});
  const TimeUs begin = now_;
  RouterConnects(7);
  Submit(1, 8);
  EXPECT_TRUE(Ends(Until(begin + kSecondUs)).empty()) << "no instance has come";
  UpPrefill(1);
  Submit(2, 8);
  EXPECT_TRUE(Of<CallAssign>(Until(now_ + 200 * kMillisecondUs)).empty()) << "of one role only";
  Up(Role::kDecode, 9);
  EXPECT_EQ(Of<CallAssign>(Until(now_ + 200 * kMillisecondUs)).size(), 2u);
  EXPECT_LT(now_, begin + config.instance_lease_us / 2);
  EXPECT_EQ(Of<CallAssign>(Submit(3, 8)).size(), 1u);
}

// A store that was lost begins anew at the generation of a leader that has planned under it. Those
// who listened to that one come within the time to settle, and nothing is planned before it.
TEST_F(RouterStreamsTest, AnElectedLeaderOfTheFirstGenerationPlansNothingUnderAnothersNumbers) {
  const OrchestratorConfig config{
      .generation = 1, .incarnation = {2}, .settle_us = 500 * kMillisecondUs};
  core_ = std::make_unique<OrchestratorCore>(config);
  Do(OrchestratorTick{});
  const TimeUs begin = now_;
  UpPrefill(1);
  Up(Role::kDecode, 9);
  RouterConnects(7);
  EXPECT_TRUE(Of<CallAssign>(Submit(1, 8)).empty());
  EXPECT_TRUE(Of<CallAssign>(Until(begin + 400 * kMillisecondUs)).empty());
  const Effects knows = RouterConnects(8, {}, {.number = 1, .orchestrator = {1}});
  ASSERT_EQ(Of<StoreGeneration>(knows).size(), 1u);
  UpPrefill(1);
  Up(Role::kDecode, 9);
  const auto assigned = Of<CallAssign>(Until(now_ + kSecondUs));
  ASSERT_EQ(assigned.size(), 1u);
  EXPECT_EQ(GenerationOf(assigned[0].request.epoch.value), 2u);
}

// The network was cut when it began, and a router is back before the workers.
TEST_F(RouterStreamsTest, ASuccessorToWhichNobodyCouldComeSettlesWhenTheFirstComes) {
  const OrchestratorConfig config{.generation = 2, .settle_us = 500 * kMillisecondUs};
  core_ = std::make_unique<OrchestratorCore>(config);
  Do(OrchestratorTick{});
  Until(now_ + 10 * config.instance_lease_us);
  RouterConnects(7);
  Submit(1, 8);
  EXPECT_TRUE(Ends(Until(now_ + kSecondUs)).empty());
  UpPrefill(1);
  Up(Role::kDecode, 9);
  EXPECT_EQ(Of<CallAssign>(Until(now_ + 200 * kMillisecondUs)).size(), 1u);
}

TEST_F(RouterStreamsTest, ASuccessorThatIsLookedForWaitsALeaseAtMost) {
  const OrchestratorConfig config{.generation = 2, .settle_us = 500 * kMillisecondUs};
  core_ = std::make_unique<OrchestratorCore>(config);
  Do(OrchestratorTick{});
  const TimeUs begin = now_;
  RouterConnects(7);
  EXPECT_TRUE(Ends(Until(begin + 2 * kSecondUs)).empty());
  Submit(1, 8);
  EXPECT_TRUE(Ends(Until(begin + config.instance_lease_us - kMillisecondUs)).empty());
  EXPECT_EQ(Updates<Failed>(Until(begin + config.instance_lease_us + kMillisecondUs)).size(), 1u);
}

// It cannot know yet how much the instances hold together: one that can take a long prompt may be
// still to come. Others do not wait for it.
TEST_F(RouterStreamsTest, ASuccessorRefusesNoLongPromptBeforeAllHadTheTimeToCome) {
  const OrchestratorConfig config{.generation = 2, .settle_us = 500 * kMillisecondUs};
  core_ = std::make_unique<OrchestratorCore>(config);
  Do(OrchestratorTick{});
  const TimeUs begin = now_;
  RouterConnects(7);
  const InstanceId decode = Up(Role::kDecode, 9);
  total_blocks_ = 2;
  UpPrefill(1);
  Until(begin + 600 * kMillisecondUs);
  const Effects waits = Submit(1, 4000);
  EXPECT_TRUE(Ends(waits).empty() && Of<CallAssign>(waits).empty());
  Submit(2, 8);
  EXPECT_EQ(Of<CallAssign>(Until(now_ + 100 * kMillisecondUs)).size(), 1u);
  EXPECT_TRUE(Ends(Until(begin + 2 * kSecondUs)).empty());
  total_blocks_ = 100000;
  UpPrefill(1);
  EXPECT_EQ(Of<CallAssign>(Until(now_ + 100 * kMillisecondUs)).size(), 1u);
  Report(decode);
  EXPECT_TRUE(Ends(Submit(3, 4'000'000)).empty());
  const auto failed = Updates<Failed>(Until(begin + config.instance_lease_us + kMillisecondUs));
  ASSERT_EQ(failed.size(), 1u) << "it fits none";
  EXPECT_TRUE(absl::IsInvalidArgument(failed[0].status)) << failed[0].status;
}

// The limit counts them, too: what a router can offer in that time has no other bound.
TEST_F(RouterStreamsTest, NoMoreWaitThanTheOrchestratorTakes) {
  core_ =
      std::make_unique<OrchestratorCore>(OrchestratorConfig{.generation = 2, .max_requests = 2});
  RouterConnects(7);
  for (const uint64_t serial : {1, 2, 1}) EXPECT_TRUE(Ends(Submit(serial, 8)).empty());
  const auto refused = Updates<Failed>(Submit(3, 8));
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(refused[0].status)) << refused[0].status;
  EXPECT_EQ(core_->Totals().refused, 1u);
  EXPECT_TRUE(Ends(Do(SubmitCalled{.spec = Spec(4, 8), .accepted = true})).empty())
      << "the orchestrator before had accepted it";
  EXPECT_EQ(core_->Totals().planning, 3);
}

TEST_F(RouterStreamsTest, ALaterSubmissionDoesNotOvertakeThoseThatWait) {
  core_ = std::make_unique<OrchestratorCore>(OrchestratorConfig{.generation = 2});
  UpPrefill(1);
  Up(Role::kDecode, 9);
  const uint64_t many = 100;
  for (uint64_t serial = 1; serial <= many; ++serial) Submit(serial, 8);
  now_ += OrchestratorConfig{}.instance_lease_us / 2;
  uint64_t planned = 0;
  const auto take = [&planned](const std::vector<CallAssign>& assigned) {
    for (const CallAssign& one : assigned) EXPECT_EQ(one.request.spec->id.serial, ++planned);
  };
  for (const uint64_t serial : {many + 1, many + 2}) take(Of<CallAssign>(Submit(serial, 8)));
  for (int ticks = 0; ticks < 4; ++ticks) take(Of<CallAssign>(Do(OrchestratorTick{})));
  EXPECT_EQ(planned, many + 2);
}

// Without --state-dir all start with 1.
TEST_F(RouterStreamsTest, AnEqualGenerationOfAnotherProcessIsFollowed) {
  Do(RouterDisconnected{router_stream_});
  const Effects effects = RouterConnects(7, {}, {.number = 1, .orchestrator = {5}});
  EXPECT_EQ(Of<WelcomeRouter>(effects).at(0).welcome.generation.number, 2u);
  const Generation now = Of<WelcomeRouter>(effects).at(0).welcome.generation;
  EXPECT_TRUE(Of<StoreGeneration>(RouterConnects(8, {}, now)).empty()) << "that is its own";
}

// Of the generation before others may have issued epochs, too.
TEST_F(RouterStreamsTest, RequestsOfTheGenerationBeforeAreLeftAlone) {
  const CallAssign own = Place(1, 8).at(0);
  RouterConnects(7, {{.id = {7, 1}}}, {.number = 1, .orchestrator = {5}});
  const HeldRequest of_another{{7, 60}, {FirstNumberOf(1) + 3}};
  const HeldRequest unknown{{7, 61}, {FirstNumberOf(2) + 3}};
  const Effects effects = Connect(Role::kDecode, 9, "a", {Held(own), of_another, unknown});
  const auto cancel = Of<AnswerRegister>(effects).at(0).reply.cancel;
  ASSERT_EQ(cancel.size(), 1u);
  EXPECT_EQ(cancel[0].id, (RequestId{7, 61}));
}

// Routers place requests in the cells that say they have room.
TEST_F(RouterStreamsTest, RoutersAreToldWhatTheCellCanTake) {
  using Loads = CellLoads;
  Place(1, 4000);
  const CellReport welcomed = Of<WelcomeRouter>(Again({{.id = {7, 1}}})).at(0).welcome.cell;
  EXPECT_EQ(welcomed.models, (Loads{{"m", {OrchestratorConfig{}.max_requests, 1}}}))
      << "no instance tells how many requests it holds";
  EXPECT_EQ(welcomed.routers, 1);
  Do(RouterEnded{{.id = {7, 1}}});
  const auto answer = Of<AnswerRouterReport>(Do(RouterReported{router_stream_, {}}));
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_EQ(answer[0].cell.models.at("m").held, 0);
}

}  // namespace
}  // namespace skein::scheduler
