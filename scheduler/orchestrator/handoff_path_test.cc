// Which path a request's KV took, as its prefill instance tells it with the end of its part: told
// by explain, and counted where a faster one was to be had.
#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

class HandoffPathTest : public PlanningTest {
 protected:
  HandoffPathTest() : PlanningTest("single") {
    UpPrefill(1);
    decode_ = Up(Role::kDecode, 2, "b");
  }

  EndedRequest HandedOver(const CallAssign& assign, HandoffPath path) {
    EndedRequest ended = Ended(assign);
    ended.handoff = std::move(path);
    return ended;
  }
  uint64_t Count(Degraded kind) const {
    return core_->Totals().degraded[static_cast<size_t>(kind)];
  }
  PlanExplanation Plan(uint64_t serial) {
    return core_->Explain("7/" + std::to_string(serial), now_).at(0).plans.at(0);
  }

  const HandoffPath tcp_{.path = "direct", .transport = "tcp"};
  InstanceId decode_;
};

TEST_F(HandoffPathTest, ASlowerPathIsCountedByReasonAndTold) {
  const CallAssign assign = Place(1, 8).at(0);
  Report(assign.instance, {}, {HandedOver(assign, tcp_)});
  EXPECT_EQ(Count(Degraded::kHandoffTcp), 1u);
  EXPECT_EQ(Count(Degraded::kHandoffHostMemory), 0u);
  const PlanExplanation plan = Plan(1);
  EXPECT_EQ(plan.decode, decode_);
  ASSERT_EQ(plan.handoffs.size(), 1u);
  EXPECT_EQ(plan.handoffs[0].prefill, assign.instance);
  EXPECT_EQ(plan.handoffs[0].path, tcp_);
  EXPECT_EQ(plan.handoffs[0].slower,
            "over TCP: the instances are on different nodes (a and b), and UCX found nothing "
            "faster between them");
}

TEST_F(HandoffPathTest, CallsThatWereSentAgainAreCountedAndTold) {
  const CallAssign assign = Place(1, 8).at(0);
  const HandoffPath retried{.path = "direct", .transport = "cuda-ipc", .retries = 2};
  Report(assign.instance, {}, {HandedOver(assign, retried)});
  EXPECT_EQ(Count(Degraded::kHandoffRetried), 1u);
  EXPECT_EQ(Plan(1).handoffs.at(0).path, retried);
  // Of one that has ended, and tells no path.
  const CallAssign other = Place(2, 8).at(0);
  Do(RouterEnded{{{7, 2}, RouterEnd::How::kMaxTokens, "", 1, 10}});
  Report(other.instance, {}, {HandedOver(other, {.commit_unanswered = true})});
  EXPECT_EQ(Count(Degraded::kHandoffRetried), 2u);
  EXPECT_TRUE(Plan(2).handoffs.at(0).path.commit_unanswered);
}

// Of the instances that computed a prompt together, each tells its own.
TEST_F(HandoffPathTest, AnExchangeThroughHostMemoryIsCountedAndTold) {
  Make("fixed2");
  UpPrefill(2);
  Up(Role::kDecode, 2);
  const auto assigns = Place(1, 4000);
  ASSERT_EQ(assigns.size(), 2u);
  const RingPath slow{.through_host = true, .why = "ipc: rank 1 cannot open rank 0"};
  for (const CallAssign& assign : assigns) {
    EndedRequest ended = Ended(assign);
    ended.ring = assign.instance == assigns[0].instance ? slow : RingPath{};
    Report(assign.instance, {}, {ended});
    Report(assign.instance, {}, {ended});
  }
  EXPECT_EQ(Count(Degraded::kRingHostMemory), 1u);
  EXPECT_STREQ(NameOf(Degraded::kRingHostMemory), "ring_host_memory");
  const PlanExplanation plan = Plan(1);
  ASSERT_EQ(plan.rings.size(), 2u);
  EXPECT_EQ(plan.rings[0].prefill, assigns[0].instance);
  EXPECT_EQ(plan.rings[0].path, slow);
  EXPECT_EQ(plan.rings[1].path, RingPath{});
}

TEST_F(HandoffPathTest, AnExchangeOfAPlanThatWasGivenUpCountsNothing) {
  const CallAssign assign = Place(1, 8).at(0);
  EndedRequest ended = Ended(assign, absl::UnavailableError("broke"));
  ended.ring = RingPath{.through_host = true, .why = "x"};
  Report(assign.instance, {}, {ended});
  EXPECT_EQ(Count(Degraded::kRingHostMemory), 0u);
}

TEST_F(HandoffPathTest, TheFastestPathIsToldAndCountsNothing) {
  const CallAssign assign = Place(1, 8).at(0);
  Report(assign.instance, {}, {HandedOver(assign, {.path = "direct", .transport = "cuda-ipc"})});
  EXPECT_EQ(core_->Totals().degraded, DegradedCounts{});
  ASSERT_EQ(Plan(1).handoffs.size(), 1u);
  EXPECT_EQ(Plan(1).handoffs[0].slower, "");
}

// A cancel could come before the commit's answer at the prefill instance, which would then report a
// failed handoff of a request that succeeded.
TEST_F(HandoffPathTest, NothingIsCancelledOfARequestThatRanToItsEnd) {
  for (const auto how : {RouterEnd::How::kMaxTokens, RouterEnd::How::kStopToken}) {
    Place(static_cast<uint64_t>(how) + 1, 8);
    const Effects effects = Do(RouterEnded{{{7, static_cast<uint64_t>(how) + 1}, how, "", 1, 10}});
    EXPECT_TRUE(Of<CallCancel>(effects).empty());
  }
  // Its tokens go on at the decode instance.
  Place(9, 8);
  const Effects effects = Do(RouterEnded{{{7, 9}, RouterEnd::How::kStopString, "", 1, 10}});
  EXPECT_EQ(Of<CallCancel>(effects).size(), 2u);
}

// A short answer is over before its prefill instance reports.
TEST_F(HandoffPathTest, ItIsToldOfARequestThatHasEndedToo) {
  const CallAssign assign = Place(1, 8).at(0);
  Do(RouterEnded{{{7, 1}, RouterEnd::How::kMaxTokens, "", 1, 10}});
  Report(assign.instance, {}, {HandedOver(assign, tcp_)});
  EXPECT_EQ(Count(Degraded::kHandoffTcp), 1u);
  EXPECT_EQ(Plan(1).handoffs.size(), 1u);
}

TEST_F(HandoffPathTest, WhatIsSaidAgainAfterABreakCountsOnce) {
  const CallAssign assign = Place(1, 8).at(0);
  const EndedRequest ended = HandedOver(assign, tcp_);
  Report(assign.instance, {}, {ended});
  Do(RouterEnded{{{7, 1}, RouterEnd::How::kMaxTokens, "", 1, 10}});
  Break(assign.instance);
  Connect(Role::kPrefill, incarnations_[assign.instance].value, "a", {}, {ended});
  EXPECT_EQ(Count(Degraded::kHandoffTcp), 1u);
  EXPECT_EQ(Plan(1).handoffs.size(), 1u);
}

}  // namespace
}  // namespace skein::scheduler
