// A request whose token stream no router took: its decode instance says so when it has waited long
// enough.
#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

class UnclaimedTest : public PlanningTest {
 protected:
  UnclaimedTest() : PlanningTest("single") {
    UpPrefill(1);
    decode_ = Up(Role::kDecode, 2);
    other_ = Up(Role::kDecode, 3);
  }
  // Its KV was taken, and the answer computed.
  CallAssign Decoded(uint64_t serial) {
    const CallAssign assign = Place(serial, 8).at(0);
    Report(assign.instance, {}, {Ended(assign)});
    return assign;
  }
  Effects NobodyCame(const CallAssign& assign) {
    EndedRequest ended = Ended(assign, absl::DeadlineExceededError("no router attached"));
    ended.unclaimed = true;
    return Report(opened_at_, {}, {ended});
  }
  uint64_t Counted() const {
    return core_->Totals().degraded[static_cast<size_t>(Degraded::kUnclaimed)];
  }

  InstanceId decode_;
  InstanceId other_;
};

TEST_F(UnclaimedTest, ItIsPlannedAnewAtAnotherDecodeInstance) {
  RouterConnects(7);
  const CallAssign assign = Decoded(1);
  const InstanceId before = opened_at_;
  const auto again = Of<CallAssign>(NobodyCame(assign));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_GT(again[0].request.epoch, assign.request.epoch);
  EXPECT_EQ(again[0].request.placed->decode, before == decode_ ? other_ : decode_);
  EXPECT_EQ(Counted(), 1u);
  EXPECT_EQ(core_->Explain("cmpl-1", now_).at(0).plans.at(0).lost, "no router attached");
}

// The router's stream is broken, or cut off: it has not heard where its request is placed.
TEST_F(UnclaimedTest, ItIsPlannedAnewIfItsRouterMayComeBack) {
  RouterConnects(7);
  const CallAssign assign = Decoded(1);
  Do(RouterDisconnected{router_stream_});
  const Effects effects = NobodyCame(assign);
  EXPECT_TRUE(Updates<Failed>(effects).empty());
  EXPECT_EQ(Of<CallAssign>(effects).size(), 1u);
}

// It was absent for half a lease, and its decode instance was told: if the router is back later, it
// submits the request anew.
TEST_F(UnclaimedTest, ItIsForgottenIfItsRouterDidNotComeBack) {
  RouterConnects(7);
  const CallAssign assign = Decoded(1);
  Do(RouterDisconnected{router_stream_});
  const auto cancels = Of<CallCancel>(Until(now_ + 1600 * kMillisecondUs));
  ASSERT_EQ(cancels.size(), 1u);
  EXPECT_EQ(cancels[0].instance, opened_at_);
  EXPECT_TRUE(cancels[0].request.unless_claimed);
  const Effects effects = NobodyCame(assign);
  EXPECT_TRUE(Updates<Failed>(effects).empty());
  EXPECT_TRUE(Of<CallAssign>(effects).empty());
  EXPECT_EQ(core_->StateOf({7, 1}), "");
  EXPECT_EQ(Counted(), 0u);
  const auto welcome = Of<WelcomeRouter>(RouterConnects(7, {{.id = {7, 1}}}));
  EXPECT_EQ(welcome.at(0).welcome.unknown, (std::vector<RequestId>{{7, 1}}));
}

// Nobody would take the tokens there either.
TEST_F(UnclaimedTest, ItFailsIfItsRouterIsNotHeardOf) {
  const auto failed = Updates<Failed>(NobodyCame(Decoded(1)));
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_EQ(failed[0].status, absl::DeadlineExceededError("no router attached"));
  EXPECT_EQ(Counted(), 1u);
}

TEST_F(UnclaimedTest, ItIsPlannedAnewAFewTimesOnly) {
  RouterConnects(7);
  CallAssign assign = Decoded(1);
  for (int i = 0;; ++i) {
    ASSERT_LT(i, 20);
    const Effects effects = NobodyCame(assign);
    if (!Updates<Failed>(effects).empty()) break;
    assign = Placed(Of<CallAssign>(effects)).at(0);
    Report(assign.instance, {}, {Ended(assign)});
  }
  EXPECT_EQ(core_->StateOf({7, 1}), "");
}

}  // namespace
}  // namespace skein::scheduler
