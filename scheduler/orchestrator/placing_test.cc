// Which instance decodes a request, and the wait for room.
#include "scheduler/orchestrator/testing/plain_testing.h"

namespace skein::scheduler {
namespace {

TEST_F(OrchestratorCoreTest, Invariant3WaitingForDecodeRoomIsFirstComeFirstServed) {
  Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  Report(decode, 2, {}, {}, 3);
  const CallAssign large = Submit(1, 19, 1);  // 5 blocks
  EXPECT_FALSE(large.request.placed.has_value());
  EXPECT_EQ(PlacedAt(Ask(large)), InstanceId{});
  const CallAssign small = Submit(2, 4, 4);  // 2 blocks
  EXPECT_FALSE(small.request.placed.has_value()) << "it does not overtake";
  EXPECT_EQ(PlacedAt(Ask(small)), InstanceId{});
  EXPECT_EQ(core_->Snapshot(now_).waiting, 2);
  const Effects room = Report(decode, 2, {}, {}, 8);
  ASSERT_EQ(Of<AnswerPlaceDecode>(room).size(), 2u);
  EXPECT_EQ(Of<AnswerPlaceDecode>(room)[0].id, (RequestId{7, 1}));
  EXPECT_EQ(Of<CallAnnounce>(room).size(), 2u);
  EXPECT_EQ(core_->Snapshot(now_).reserving, 2);
}

// A burst does not choose one instance: what was placed counts before its blocks are taken.
TEST_F(OrchestratorCoreTest, PlansOfABurstAreSpreadByVirtualUsage) {
  Up(Role::kPrefill, 1);
  const InstanceId first = Up(Role::kDecode, 2);
  const InstanceId second = Up(Role::kDecode, 3);
  std::map<InstanceId, int> placed;
  std::vector<CallAssign> assigns;
  for (uint64_t serial = 1; serial <= 10; ++serial) {
    assigns.push_back(Submit(serial));  // of 2 blocks; there are 20
    ++placed[assigns.back().request.placed->decode];
  }
  EXPECT_EQ(placed, (std::map<InstanceId, int>{{first, 5}, {second, 5}}));
  const CallAssign more = Submit(11);
  EXPECT_FALSE(more.request.placed.has_value()) << "all room is spoken for";
  // Nobody has taken a block, and the lead of this one is about to start.
  EXPECT_EQ(PlacedAt(Ask(more)), first);
  EXPECT_EQ(Of<CallWithdraw>(Ask(assigns[0], first, absl::ResourceExhaustedError("blocks"))).size(),
            1u);
}

TEST_F(OrchestratorCoreTest, AChoiceThatSharesAPromptCounts) {
  Up(Role::kPrefill, 1);
  Up(Role::kDecode, 2);
  Submit(1);
  const auto choice = std::make_shared<RequestHead>(*Spec(2));
  choice->prompt_of = RequestId{7, 1};
  Do(SubmitCalled{choice});
  EXPECT_EQ(core_->StateOf({7, 2}), "sharing");
  EXPECT_EQ(core_->Totals().sharing, 1);
  EXPECT_EQ(core_->Totals().requests, 2);
  const std::string waits = "waiting for the prompt of its answer's first choice";
  const std::vector<Explanation> explained = core_->Explain(ToString(RequestId{7, 2}), now_);
  ASSERT_EQ(explained.size(), 1u);
  EXPECT_EQ(explained[0].state, waits);
  const std::vector<Explanation> listed = core_->Requests(RequestOrder::kRecent, 10, now_);
  ASSERT_EQ(listed.size(), 2u);
  EXPECT_EQ(listed[0].state == waits, listed[0].id == (RequestId{7, 2}));
  EXPECT_EQ(listed[1].state == waits, listed[1].id == (RequestId{7, 2}));
  Do(Closed({7, 2}));
  EXPECT_EQ(core_->Totals().sharing, 0);
  EXPECT_EQ(core_->Totals().requests, 1);
}

// So it may attach before the transfer is open.
TEST_F(OrchestratorCoreTest, TheRouterHearsWithThePlanWhereItsRequestWasAnnounced) {
  Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const auto planned = [this](uint64_t serial) {
    const auto updates = Of<SendPlanUpdate>(Do(SubmitCalled{Spec(serial, 4, 4)}));
    return updates.empty() ? Planned{} : std::get<Planned>(updates.back().update);
  };
  const Planned first = planned(1);
  EXPECT_EQ(first.decode, decode);
  EXPECT_FALSE(first.decode_endpoint.empty());
  for (uint64_t serial = 2; serial <= 5; ++serial) planned(serial);  // 2 of 10 blocks each
  EXPECT_EQ(planned(6).decode, InstanceId{}) << "it has no place yet";
}

// Those that were placed with their plans stand in queues behind the one that asks: they may not
// keep it waiting. Those whose leads open right now count.
TEST_F(OrchestratorCoreTest, WhoAsksIsNotKeptWaitingByWhatIsOnlyAnnounced) {
  Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const CallAssign one = Submit(1, 19, 1);  // 5 of 10 blocks
  const CallAssign two = Submit(2, 19, 1);
  ASSERT_TRUE(one.request.placed.has_value() && two.request.placed.has_value());
  const CallAssign three = Submit(3, 19, 1);
  const CallAssign four = Submit(4, 19, 1);
  const CallAssign five = Submit(5, 19, 1);
  EXPECT_EQ(PlacedAt(Ask(three)), decode);
  EXPECT_EQ(PlacedAt(Ask(four)), decode);
  EXPECT_EQ(PlacedAt(Ask(five)), InstanceId{}) << "two leads open there now";
  Do(TransferOpened{decode, {7, 3}, three.request.epoch});
  Do(TransferOpened{decode, {7, 4}, four.request.epoch});
  EXPECT_EQ(PlacedAt(Ask(one, decode, absl::ResourceExhaustedError("blocks"))), InstanceId{});
  EXPECT_EQ(core_->Snapshot(now_).waiting, 2);
  const auto room = Of<AnswerPlaceDecode>(
      Report(decode, 2, {{.id = {7, 4}, .epoch = four.request.epoch, .opened = true}},
             {{{7, 3}, three.request.epoch, FinishReason::kLength, {}}}, 5));
  ASSERT_EQ(room.size(), 1u) << "first come, first served";
  EXPECT_EQ(room[0].id, (RequestId{7, 5}));
}

TEST_F(OrchestratorCoreTest, AQuestionForAPlaceIsAnsweredWhenThereIsRoomAndNotBefore) {
  Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  Report(decode, 2, {}, {}, 0);
  const CallAssign assign = Submit(1);
  Ask(assign);
  while (now_ < 20 * kSecondUs) {
    now_ += kSecondUs;
    EXPECT_TRUE(Of<AnswerPlaceDecode>(Report(decode, 2, {}, {}, 0)).empty());
    Report(assign.instance, 1, {{{7, 1}, assign.request.epoch}});
  }
  EXPECT_EQ(core_->Snapshot(now_).waiting, 1);
  EXPECT_EQ(PlacedAt(Report(decode, 2, {}, {}, 2)), decode);
}

TEST_F(OrchestratorCoreTest, AFullDecodeInstanceIsNotAskedAgainBeforeItsNextReport) {
  Up(Role::kPrefill, 1);
  const InstanceId decode = Up(Role::kDecode, 2);
  const CallAssign assign = Submit(1);
  const Effects refused = Ask(assign, decode, absl::ResourceExhaustedError("blocks"));
  EXPECT_EQ(PlacedAt(refused), InstanceId{});
  ASSERT_EQ(Of<CallWithdraw>(refused).size(), 1u);
  EXPECT_EQ(Of<CallWithdraw>(refused)[0].instance, decode);
  EXPECT_EQ(PlacedAt(Report(decode, 2)), decode) << "the same epoch is announced again";
  const DegradedCounts degraded = core_->Snapshot(now_).degraded;
  EXPECT_EQ(degraded[static_cast<size_t>(Degraded::kDecodeFull)], 1u);
  EXPECT_EQ(degraded[static_cast<size_t>(Degraded::kReplanned)], 0u);
}

TEST_F(OrchestratorCoreTest, APlaceThatCannotBeReachedIsWithdrawnAndMadeElsewhere) {
  Up(Role::kPrefill, 1);
  const InstanceId first = Up(Role::kDecode, 2);
  const InstanceId second = Up(Role::kDecode, 3);
  const CallAssign assign = Submit(1);
  EXPECT_EQ(assign.request.placed->decode, first);
  const Effects effects = Ask(assign, first, absl::DeadlineExceededError("late"));
  EXPECT_EQ(Of<CallWithdraw>(effects)[0].instance, first);
  EXPECT_EQ(Of<CallAnnounce>(effects)[0].instance, second);
  EXPECT_EQ(PlacedAt(effects), second);
  EXPECT_TRUE(Opened(assign).empty()) << "at the first: too late";
  EXPECT_EQ(PlacedAt(Ask(assign)), second) << "the answer was lost";
}

TEST_F(OrchestratorCoreTest, ADecodeInstanceThatDiesBeforeItIsOpenedCostsOnlyThePlan) {
  const InstanceId prefill = Up(Role::kPrefill, 1);
  const InstanceId first = Up(Role::kDecode, 2);
  const InstanceId second = Up(Role::kDecode, 3);
  const CallAssign assign = Submit(1);
  ASSERT_EQ(assign.request.placed->decode, first);
  const Effects lost = Do(UnregisterCalled{Call(), {first, {2}}});
  EXPECT_TRUE(Updates<Failed>(lost).empty());
  EXPECT_EQ(Of<CallCancel>(lost).at(0).instance, prefill);
  const auto again = Of<CallAssign>(Report(
      prefill, 1, {},
      {{{7, 1}, assign.request.epoch, FinishReason::kCancelled, absl::CancelledError("c")}}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].request.placed->decode, second);
}

}  // namespace
}  // namespace skein::scheduler
