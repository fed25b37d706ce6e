// What operators see and order: drains, routers, what is gone, recent and slowest requests, how
// requests ended.
#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

class OperatorTest : public PlanningTest {
 protected:
  absl::Status Drain(DrainRequest request) {
    return Of<AnswerDrain>(last_ = Do(DrainCalled{Call(), request})).at(0).reply.status;
  }
  absl::Status Drain(InstanceId instance, bool undo = false) {
    return Drain({.instance = instance, .undo = undo});
  }
  void RouterReports(CallId stream, bool draining = false, int64_t requests = 0) {
    const Effects effects = Do(RouterReported{stream, {.running = requests, .draining = draining}});
    EXPECT_EQ(Of<AnswerRouterReport>(effects).size(), 1u);
  }
  CallId RouterComes(uint64_t router) {
    const Effects effects = RouterConnects(router);
    EXPECT_EQ(Of<WelcomeRouter>(effects).size(), 1u);
    return router_stream_;
  }
  InstanceStatus StatusOf(InstanceId instance) {
    for (const InstanceStatus& status : core_->Snapshot(now_).instances) {
      if (status.instance == instance) return status;
    }
    return {};
  }
  Explanation Explained(uint64_t serial) {
    return core_->Explain("cmpl-" + std::to_string(serial), now_).at(0);
  }

  Effects last_;
};

TEST_F(OperatorTest, ADrainedPrefillInstanceGetsNothingNewAndSaysWhenItIsEmpty) {
  Make("single");
  const std::vector<InstanceId> prefill = UpPrefill(2);
  Up(Role::kDecode, 2);
  const CallAssign running = Place(1, 8).at(0);
  const InstanceId busy = running.instance;
  const InstanceId other = busy == prefill[0] ? prefill[1] : prefill[0];
  ASSERT_TRUE(Drain(busy).ok());
  EXPECT_TRUE(Of<CallCancel>(last_).empty()) << "what runs goes on";
  ASSERT_EQ(Of<CallDrainOrder>(last_).size(), 1u);
  EXPECT_EQ(Of<CallDrainOrder>(last_)[0].instance, busy);
  EXPECT_TRUE(Of<CallDrainOrder>(last_)[0].request.drain);
  EXPECT_FALSE(StatusOf(busy).placeable);
  for (uint64_t serial = 2; serial < 6; ++serial) {
    EXPECT_EQ(Of<CallAssign>(Submit(serial, 8)).at(0).instance, other);
  }
  Report(busy, {Held(running)});
  EXPECT_FALSE(StatusOf(busy).drained);
  Report(busy, {Held(running)}, {}, /*draining=*/true);
  EXPECT_FALSE(StatusOf(busy).drained) << "it holds a request";
  Report(busy, {}, {Ended(running)}, /*draining=*/true);
  EXPECT_TRUE(StatusOf(busy).drained);

  ASSERT_TRUE(Drain(busy, /*undo=*/true).ok());
  EXPECT_FALSE(StatusOf(busy).placeable) << "it has not heard it yet";
  EXPECT_FALSE(Of<CallDrainOrder>(last_).at(0).request.drain);
  Report(busy);
  EXPECT_TRUE(StatusOf(busy).placeable);
}

TEST_F(OperatorTest, ADrainedDecodeInstanceGetsNoReservation) {
  UpPrefill(2);
  const InstanceId first = Up(Role::kDecode, 2);
  const InstanceId second = Up(Role::kDecode, 3);
  ASSERT_TRUE(Drain(first).ok());
  for (uint64_t serial = 1; serial < 6; ++serial) {
    Place(serial, 8);
    EXPECT_EQ(opened_at_, second);
  }
}

TEST_F(OperatorTest, TheLastInstanceIsDrainedOnlyByForce) {
  UpPrefill(1);
  const InstanceId first = Up(Role::kDecode, 2);
  const InstanceId second = Up(Role::kDecode, 3);
  ASSERT_TRUE(Drain(first).ok());
  EXPECT_TRUE(Drain(first).ok()) << "again is fine";
  const absl::Status refused = Drain(second);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("last decode instance"), absl::string_view::npos) << refused;
  EXPECT_TRUE(StatusOf(second).placeable);
  EXPECT_TRUE(Drain({.instance = second, .force = true}).ok());
  EXPECT_FALSE(StatusOf(second).placeable);
  EXPECT_EQ(Drain(InstanceId{5}).code(), absl::StatusCode::kNotFound);
}

TEST_F(OperatorTest, AnOrderOutlivesTheOrchestrator) {
  UpPrefill(1);
  const InstanceId decode = Up(Role::kDecode, 2);
  Break(decode);
  EXPECT_TRUE(Of<CallDrainOrder>(Connect(Role::kDecode, 2)).empty())
      << "this orchestrator was told nothing: the instance stays as it is";
}

TEST_F(OperatorTest, AnOrderIsSentAgainWithEachStream) {
  UpPrefill(1);
  const InstanceId first = Up(Role::kDecode, 2);
  Up(Role::kDecode, 3);
  Break(first);
  ASSERT_TRUE(Drain(first).ok());
  EXPECT_TRUE(Of<CallDrainOrder>(last_).empty()) << "there is no stream";
  for (int i = 0; i < 2; ++i) {
    const auto orders = Of<CallDrainOrder>(Connect(Role::kDecode, 2));
    ASSERT_EQ(orders.size(), 1u);
    EXPECT_TRUE(orders[0].request.drain);
  }
}

// A process that is started again is there before the lease of the dead one ends.
TEST_F(OperatorTest, WhatIsMadeUpForBeforeItsLeaseEndsIsLostAndReplaced) {
  const InstanceId dead = Up(Role::kDecode, 2);
  const InstanceId silent = Up(Role::kDecode, 3);
  Do(WorkerDisconnected{streams_.at(dead)});
  Up(Role::kDecode, 4);
  Until(4 * kSecondUs);
  for (const Gone& one : core_->Snapshot(now_).gone) {
    if (one.instance == dead) {
      EXPECT_TRUE(one.replaced);
    }
    if (one.instance == silent) {
      EXPECT_FALSE(one.replaced);
    }
  }
}

TEST_F(OperatorTest, WhatIsLostIsShownUntilAnotherComes) {
  UpPrefill(1);
  const InstanceId lost = Up(Role::kDecode, 2);
  const InstanceId left = Up(Role::kDecode, 3);
  Do(UnregisterCalled{Call(), {left, incarnations_[left]}});
  Until(4 * kSecondUs);
  std::vector<Gone> gone = core_->Snapshot(now_).gone;
  ASSERT_EQ(gone.size(), 3u);  // the prefill instance fell silent, too
  EXPECT_EQ(gone[2].instance, left);
  EXPECT_TRUE(gone[2].left);
  EXPECT_EQ(gone[2].why, "has left");
  const auto entry = gone[0].instance == lost ? gone[0] : gone[1];
  EXPECT_EQ(entry.instance, lost);
  EXPECT_EQ(entry.why, "was lost: its lease expired");
  EXPECT_FALSE(entry.left || entry.replaced);
  EXPECT_EQ(core_->Snapshot(now_).instances_lost, 2u);
  const auto by_role = core_->Snapshot(now_).lost;
  EXPECT_EQ(by_role.at({"m", Role::kPrefill}) + by_role.at({"m", Role::kDecode}), 2u);
  Up(Role::kDecode, 4);
  for (const Gone& one : core_->Snapshot(now_).gone) {
    EXPECT_EQ(one.replaced, one.instance == lost);
  }
  now_ += 3601 * kSecondUs;
  EXPECT_TRUE(core_->Snapshot(now_).gone.empty());
  EXPECT_EQ(core_->Snapshot(now_).models.count("m"), 1u);
}

TEST_F(OperatorTest, RoutersComeAreDrainedAndAreLost) {
  const CallId seven = RouterComes(7);
  EXPECT_EQ(Drain({.router = 7}).code(), absl::StatusCode::kFailedPrecondition);
  RouterComes(8);
  ASSERT_TRUE(Drain({.router = 7}).ok());
  ASSERT_EQ(Of<OrderRouterDrain>(last_).size(), 1u);
  EXPECT_EQ(Of<OrderRouterDrain>(last_)[0].call, seven);
  EXPECT_TRUE(Of<OrderRouterDrain>(last_)[0].drain);
  RouterReports(seven, true, 2);
  EXPECT_FALSE(core_->Snapshot(now_).routers.at(0).drained);
  RouterReports(seven, true, 0);
  EXPECT_TRUE(core_->Snapshot(now_).routers.at(0).drained);
  EXPECT_EQ(Drain({.router = 9}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Of<AnswerRouterGoodbye>(Do(RouterLeft{seven})).size(), 1u);
  EXPECT_EQ(core_->Snapshot(now_).routers.size(), 1u);
  EXPECT_TRUE(core_->Snapshot(now_).gone.at(0).left);
  const Effects lost = Until(now_ + 4 * kSecondUs);
  EXPECT_TRUE(core_->Snapshot(now_).routers.empty());
  EXPECT_EQ(Of<CloseRouter>(lost).size(), 1u);
  EXPECT_EQ(core_->Snapshot(now_).gone.at(0).endpoint, "r:8");
  EXPECT_FALSE(core_->Snapshot(now_).gone.at(0).left);
}

TEST_F(OperatorTest, ARouterHearsAnOrderAgainOnItsNextStream) {
  RouterComes(7);
  Do(RouterDisconnected{router_stream_});
  EXPECT_TRUE(Drain({.router = 7, .force = true}).ok());
  EXPECT_TRUE(Of<OrderRouterDrain>(last_).empty());
  EXPECT_EQ(Of<OrderRouterDrain>(RouterConnects(7)).size(), 1u);
}

TEST_F(OperatorTest, TheRouterSaysHowARequestEnded) {
  Make("single");
  UpPrefill(1);
  const InstanceId decode = Up(Role::kDecode, 2);
  struct Case {
    RouterEnd end;
    const char* state;
  };
  const std::vector<Case> cases = {
      {{{7, 1}, RouterEnd::How::kStopToken, "", 3, 500'000}, "completed: stop token"},
      {{{7, 2}, RouterEnd::How::kStopString, "", 3, 500'000}, "completed: stop string"},
      {{{7, 3}, RouterEnd::How::kMaxTokens, "", 4, 500'000}, "completed: max_tokens"},
      {{{7, 4}, RouterEnd::How::kClientGone, "", 2, 500'000}, "client disconnected"},
      {{{7, 5}, RouterEnd::How::kFailed, "no room", 0, -1}, "failed: no room"}};
  for (const Case& one : cases) {
    const uint64_t serial = one.end.id.serial;
    Place(serial, 8);
    now_ += kSecondUs;
    if (serial % 2 == 0) {  // its word may come after a hello that does not list the request
      RouterConnects(7);
      EXPECT_EQ(Explained(serial).state, "cancelled by its router");
    }
    Do(RouterEnded{one.end});
    const Explanation ended = Explained(serial);
    EXPECT_EQ(ended.state, one.state);
    EXPECT_EQ(ended.output_tokens, one.end.output_tokens);
    EXPECT_EQ(ended.first_token_us, one.end.first_token_us);
    EXPECT_EQ(ended.prefilled_us, one.end.first_token_us) << "all KV was taken by then";
    EXPECT_EQ(ended.plans.at(0).chunks.at(0).ended_us, one.end.first_token_us);
    Report(decode);
  }
}

// The reports of a short request: the worker's come after the router's close, whose time counts
// from a moment of the router's own.
TEST_F(OperatorTest, TheTimesOfARequestAreInOrder) {
  Make("single");
  UpPrefill(1);
  Up(Role::kDecode, 2);
  const CallAssign assign = Place(1, 8).at(0);
  now_ = 5 * kMillisecondUs;
  Report(assign.instance, {}, {Ended(assign)});  // its prefill, done before any report began it
  Do(RouterEnded{{{7, 1}, RouterEnd::How::kMaxTokens, "", 1, 4 * kMillisecondUs}});
  Explanation shown = Explained(1);
  EXPECT_EQ(shown.first_token_us, 4 * kMillisecondUs);
  EXPECT_EQ(shown.prefilled_us, 4 * kMillisecondUs) << "it was told after the first token";
  EXPECT_EQ(shown.ended_us, 5 * kMillisecondUs);
  EXPECT_LE(shown.plans.at(0).chunks.at(0).started_us, 4 * kMillisecondUs);
  EXPECT_EQ(shown.plans.at(0).chunks.at(0).ended_us, 4 * kMillisecondUs);
  Place(2, 8);
  now_ += 5 * kMillisecondUs;
  Do(RouterEnded{{{7, 2}, RouterEnd::How::kMaxTokens, "", 1, 7 * kMillisecondUs}});
  shown = Explained(2);
  EXPECT_EQ(shown.ended_us, 7 * kMillisecondUs) << "not before its first token";
}

// A request that fails at a worker is heard of from its router only.
TEST_F(OperatorTest, FailuresThatRoutersTellAreCountedOnce) {
  Make("single");
  UpPrefill(1);
  Up(Role::kDecode, 2);
  const auto failed = [this] { return core_->Snapshot(now_).failed; };
  const auto lost = [](uint64_t serial) {
    return RouterEnd{{7, serial}, RouterEnd::How::kFailed, "the instance was lost", 3, 1000};
  };
  Place(1, 8);
  RouterConnects(7);
  EXPECT_EQ(failed(), 0u);
  Do(RouterEnded{lost(1)});
  EXPECT_EQ(failed(), 1u);
  Do(RouterEnded{lost(1)});  // repeated until it was heard
  EXPECT_EQ(failed(), 1u);
  Place(2, 8);
  Do(RouterEnded{lost(2)});
  EXPECT_EQ(failed(), 2u);
  Do(RouterEnded{{{7, 2}, RouterEnd::How::kStopToken, "", 3, 1000}});
  EXPECT_EQ(failed(), 2u);
}

TEST_F(OperatorTest, TheDecodeInstanceSaysHowARequestEndedWhoseRouterClosedFirst) {
  Make("single");
  UpPrefill(1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const CallAssign assign = Place(1, 8).at(0);
  now_ = kSecondUs;
  RouterConnects(7);
  EndedRequest ended = Ended(assign);
  ended.reason = FinishReason::kLength;
  now_ = 2 * kSecondUs;
  Report(decode, {}, {ended});
  const Explanation shown = Explained(1);
  EXPECT_EQ(shown.state, "completed: max_tokens");
  EXPECT_EQ(shown.ended_us, kSecondUs);
  EXPECT_EQ(shown.prefilled_us, kSecondUs);
  EXPECT_EQ(shown.plans.at(0).chunks.at(0).ended_us, kSecondUs) << "not: to now";
  EXPECT_EQ(shown.age_us, 2 * kSecondUs);
}

TEST_F(OperatorTest, RequestsAreListedByTimeOrByDuration) {
  Make("single");
  UpPrefill(1);
  Up(Role::kDecode, 2);
  const auto serials = [this](RequestOrder order, size_t limit) {
    std::vector<uint64_t> list;
    for (const Explanation& one : core_->Requests(order, limit, now_)) {
      EXPECT_TRUE(one.plans.empty());
      list.push_back(one.id.serial);
    }
    return list;
  };
  const std::vector<std::pair<uint64_t, TimeUs>> lasts = {{1, 100}, {2, 5000}, {3, 300}};
  for (const auto& [serial, lasts_us] : lasts) {
    Submit(serial, 8);
    now_ += lasts_us;
    Do(Closed({7, serial}));
  }
  Submit(4, 8);
  now_ += 1000;
  EXPECT_EQ(serials(RequestOrder::kRecent, 10), (std::vector<uint64_t>{4, 3, 2, 1}));
  EXPECT_EQ(serials(RequestOrder::kSlowest, 10), (std::vector<uint64_t>{2, 4, 3, 1}));
  EXPECT_EQ(serials(RequestOrder::kSlowest, 2), (std::vector<uint64_t>{2, 4}));
  EXPECT_EQ(core_->Requests(RequestOrder::kRecent, 1, now_).at(0).age_us, 1000);
}

}  // namespace
}  // namespace skein::scheduler
