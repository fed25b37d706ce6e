#include "scheduler/orchestrator/decode_flow.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "scheduler/orchestrator/testing/parts_testing.h"

namespace skein::scheduler::orchestrator {
namespace {

using DecodeFlowTest = PartsTest;

TEST_F(DecodeFlowTest, ARequestIsPlacedWithItsPlanAndOpensOnce) {
  Join(Role::kPrefill, 1);
  const InstanceId decode = Join(Role::kDecode, 2);
  Request& request = Submit(1);
  EXPECT_EQ(request.decode, decode);
  ASSERT_EQ(Of<CallAssign>().size(), 1u);
  EXPECT_EQ(Of<CallAssign>()[0].request.placed->decode, decode);
  EXPECT_EQ(registry_.Find(decode)->announced.requests, 1);

  effects_.clear();
  Open(request);
  EXPECT_EQ(request.state, State::kPlaced);
  EXPECT_EQ(Of<SendPlanUpdate>().size(), 1u) << "its router attaches";
  EXPECT_EQ(registry_.Find(decode)->announced.requests, 0);
  EXPECT_EQ(pools_.TakeMoved().count("m"), 1u);
  Open(request);
  EXPECT_EQ(Of<SendPlanUpdate>().size(), 1u) << "told once";
}

TEST_F(DecodeFlowTest, ALeadWithoutAPlaceWaitsUntilAnInstanceHasRoom) {
  Join(Role::kPrefill, 1);
  Request& request = Submit(1);
  Accept(request);
  EXPECT_EQ(request.state, State::kAssigned);
  const InstanceId full = Join(Role::kDecode, 2);
  registry_.Find(full)->load.free_blocks = 0;
  registry_.Recount(*registry_.Find(full));
  now_ += 10;
  Ask(request, 5);
  EXPECT_EQ(request.state, State::kWaiting);
  EXPECT_EQ(request.asking_until_us, now_ + kPlaceDecodeWaitUs);
  EXPECT_TRUE(Of<AnswerPlaceDecode>().empty());
  EXPECT_EQ(decode_.OldestWait(now_ + 7), 7);
  constexpr auto kWaited = static_cast<size_t>(Degraded::kDecodeWaited);
  EXPECT_EQ(explanations_.degraded()[kWaited], 1u);
  EXPECT_EQ(request.explanation.degraded[kWaited], 1u);

  registry_.Find(full)->load.free_blocks = 10;
  registry_.Recount(*registry_.Find(full));
  decode_.PlaceWaiting();
  EXPECT_EQ(request.state, State::kWaiting) << "nobody said that there is room";
  decode_.NoteChange("m");
  decode_.PlaceWaiting();
  EXPECT_EQ(request.state, State::kReserving);
  ASSERT_EQ(Of<AnswerPlaceDecode>().size(), 1u);
  EXPECT_EQ(Of<AnswerPlaceDecode>()[0].call.value, 5u);
  EXPECT_EQ(Of<AnswerPlaceDecode>()[0].reply.placed.decode, full);
  EXPECT_EQ(decode_.OldestWait(now_), 0);
  EXPECT_EQ(explanations_.degraded()[kWaited], 1u) << "one wait";
}

// Its blocks are in nobody's way: it is answered when there is room, and not before.
TEST_F(DecodeFlowTest, ALeadThatWaitsLongAsksOnce) {
  const InstanceId prefill = Join(Role::kPrefill, 1);
  Request& request = Submit(1);
  Accept(request);
  const InstanceId full = Join(Role::kDecode, 2);
  registry_.Find(full)->load.free_blocks = 0;
  registry_.Recount(*registry_.Find(full));
  Ask(request, 5);
  // A younger SP plan there waits for this request, not the other way round.
  auto spec = std::make_shared<RequestHead>();
  spec->id = {7, 9};
  registry_.Find(prefill)->Place(spec, {99}, false, {request.chunks[0].sequence.value + 1});
  for (int i = 0; i < 3; ++i) {
    now_ = request.asking_until_us;
    decode_.WaitedLong(request, now_);
    EXPECT_EQ(request.asking_until_us, now_ + kPlaceDecodeWaitUs);
  }
  EXPECT_TRUE(Of<AnswerPlaceDecode>().empty());
  EXPECT_EQ(request.state, State::kWaiting);
  registry_.Find(prefill)->Take(spec->id);

  registry_.Find(full)->load.free_blocks = 10;
  registry_.Recount(*registry_.Find(full));
  decode_.NoteChange("m");
  decode_.PlaceWaiting();
  ASSERT_EQ(Of<AnswerPlaceDecode>().size(), 1u);
  EXPECT_TRUE(Of<AnswerPlaceDecode>()[0].reply.status.ok());
}

TEST_F(DecodeFlowTest, APlainRequestYieldsToAnOlderSpPlanAtItsInstance) {
  const InstanceId prefill = Join(Role::kPrefill, 1);
  auto older = std::make_shared<RequestHead>();
  older->id = {7, 9};
  const PlanSequence sequence = numbers_.NextSequence();
  registry_.Find(prefill)->Place(older, {1}, false, sequence);
  Request& request = Submit(1);
  Accept(request);
  const InstanceId full = Join(Role::kDecode, 2);
  registry_.Find(full)->load.free_blocks = 0;
  registry_.Recount(*registry_.Find(full));
  Ask(request, 5);
  now_ = request.asking_until_us;
  decode_.WaitedLong(request, now_);
  ASSERT_EQ(Of<AnswerPlaceDecode>().size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(Of<AnswerPlaceDecode>()[0].reply.status));
  EXPECT_EQ(request.asking_until_us, kNever);
  EXPECT_EQ(request.state, State::kWaiting) << "it keeps its place";

  registry_.Find(full)->load.free_blocks = 10;
  registry_.Recount(*registry_.Find(full));
  Request& next = Submit(2);
  Accept(next);
  Ask(next, 6);
  EXPECT_EQ(next.decode, full) << "one whose lead does not ask holds up nobody";

  registry_.Find(full)->load.free_blocks = 0;
  registry_.Recount(*registry_.Find(full));
  registry_.Find(prefill)->Take(older->id);  // the plan has committed its part there
  Ask(request, 5);
  decode_.WaitedLong(request, now_);
  EXPECT_TRUE(Of<AnswerPlaceDecode>().empty());
}

TEST_F(DecodeFlowTest, ATenantIsChargedOnceForARequestThatAnInstanceRefusesAsFull) {
  Join(Role::kPrefill, 1);
  std::vector<Request*> requests;
  for (const uint64_t serial : {1, 2, 3, 4}) {
    requests.push_back(&Submit(serial, 4, serial <= 2 ? "a" : "b"));
    Accept(*requests.back());
  }
  const InstanceId decode = Join(Role::kDecode, 2);
  const auto may_hold = [&](int64_t max_requests, int64_t free_blocks) {
    registry_.Find(decode)->identity.max_requests = max_requests;
    registry_.Find(decode)->load.free_blocks = free_blocks;
    registry_.Recount(*registry_.Find(decode));
    decode_.NoteChange("m");
    decode_.PlaceWaiting();
  };
  may_hold(1, 0);
  for (Request* request : requests) Ask(*request, request->spec->id.serial);
  may_hold(1, 10);
  EXPECT_EQ(requests[0]->state, State::kReserving);
  Ask(*requests[0], 5, decode, absl::ResourceExhaustedError("no blocks"));
  EXPECT_EQ(requests[0]->state, State::kWaiting);
  may_hold(1, 10);
  EXPECT_EQ(requests[2]->state, State::kReserving) << "the other tenant was given less";
  may_hold(2, 10);
  EXPECT_EQ(requests[0]->state, State::kReserving);
  may_hold(3, 10);
  EXPECT_EQ(requests[1]->state, State::kReserving) << "both were given one";
  EXPECT_EQ(requests[3]->state, State::kWaiting);
}

TEST_F(DecodeFlowTest, ALeadThatIsAnsweredAtOnceHasNotWaited) {
  Join(Role::kPrefill, 1);
  Request& request = Submit(1);
  Accept(request);
  Join(Role::kDecode, 2);
  Ask(request, 5);
  EXPECT_EQ(request.state, State::kReserving);
  EXPECT_EQ(explanations_.degraded(), DegradedCounts{});
}

TEST_F(DecodeFlowTest, AQuestionBeforeAllMembersAcceptedKeepsUntilTheyHave) {
  Join(Role::kPrefill, 1);
  Request& request = Submit(1);
  Ask(request, 5);
  EXPECT_EQ(request.state, State::kAssigning);
  Accept(request);
  EXPECT_EQ(request.state, State::kWaiting);
}

TEST_F(DecodeFlowTest, AFullInstanceIsPassedOverUntilItsNextReport) {
  Join(Role::kPrefill, 1);
  const InstanceId one = Join(Role::kDecode, 2);
  Request& request = Submit(1);
  Accept(request);
  const InstanceId other = Join(Role::kDecode, 3);
  Ask(request, 5, one, absl::ResourceExhaustedError("no blocks"));
  EXPECT_EQ(Of<CallWithdraw>().size(), 1u);
  EXPECT_EQ(registry_.Find(one)->load.free_blocks, 0);
  EXPECT_EQ(request.decode, other);
  EXPECT_EQ(request.tried_decode.count(one), 0u) << "it is full, not unfit";
  EXPECT_EQ(explanations_.degraded()[static_cast<size_t>(Degraded::kDecodeFull)], 1u);
}

TEST_F(DecodeFlowTest, ARequestThatNoInstanceTookIsPlannedAnew) {
  Join(Role::kPrefill, 1);
  const InstanceId only = Join(Role::kDecode, 2);
  Request& request = Submit(1);
  Accept(request);
  const Epoch before = request.epoch;
  Ask(request, 5, only, absl::UnavailableError("unreachable"));
  EXPECT_GT(request.epoch, before);
  EXPECT_EQ(request.replans, 1);
  EXPECT_EQ(request.old_decodes.count(only), 1u);
  ASSERT_EQ(Of<AnswerPlaceDecode>().size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(Of<AnswerPlaceDecode>()[0].reply.status));
}

// The network between the two is cut; both answer the orchestrator.
TEST_F(DecodeFlowTest, APairThatDidNotReachEachOtherIsNotPlannedAgainForATime) {
  Join(Role::kPrefill, 1);
  const InstanceId cut = Join(Role::kDecode, 2);
  const InstanceId other = Join(Role::kDecode, 3);
  Request& request = Submit(1);
  ASSERT_EQ(request.decode, cut);
  Accept(request);
  Ask(request, 5, cut, absl::DeadlineExceededError("no answer"));
  EXPECT_EQ(request.decode, other);
  EXPECT_EQ(decode_.pairs().barred(), 1);
  EXPECT_EQ(Submit(2).decode, other) << "although it has more requests";
  now_ = decode_.NextDue();
  decode_.RunTimers(now_);
  EXPECT_EQ(decode_.pairs().barred(), 0);
  EXPECT_EQ(Submit(3).decode, cut) << "it is tried again";
}

TEST_F(DecodeFlowTest, ARefusalForLackOfRoomBarsNoPair) {
  Join(Role::kPrefill, 1);
  const InstanceId full = Join(Role::kDecode, 2);
  Join(Role::kDecode, 3);
  Request& request = Submit(1);
  Accept(request);
  Ask(request, 5, full, absl::ResourceExhaustedError("no blocks"));
  EXPECT_EQ(decode_.pairs().failures(), 0u);
}

TEST_F(DecodeFlowTest, WhereNoOtherCanBePlacedAtAPairThatFailedIsTriedAgain) {
  const InstanceId prefill = Join(Role::kPrefill, 1);
  const InstanceId cut = Join(Role::kDecode, 2);
  decode_.NoteUnreached(prefill, cut, now_);
  EXPECT_EQ(Submit(1).decode, cut) << "the only one";
  const InstanceId broken = Join(Role::kDecode, 3);
  registry_.Find(broken)->load.invariants_ok = false;
  registry_.Recount(*registry_.Find(broken));
  EXPECT_EQ(Submit(2).decode, cut);
  registry_.Find(broken)->load.invariants_ok = true;
  registry_.Recount(*registry_.Find(broken));
  EXPECT_EQ(Submit(3).decode, broken);
  decode_.NoteReached(prefill, cut);
  EXPECT_EQ(decode_.pairs().barred(), 0);
}

TEST_F(DecodeFlowTest, WithoutDecodeInstancesARequestThatAsksFails) {
  Join(Role::kPrefill, 1);
  Request& request = Submit(1);
  Accept(request);
  Ask(request, 5);
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].rfind("1 failed: No decode instance", 0), 0u) << ends_[0];
}

TEST_F(DecodeFlowTest, AStaleQuestionIsRefused) {
  Join(Role::kPrefill, 1);
  Request& request = Submit(1);
  PlaceDecodeRequest asked{.instance = request.members[0].instance,
                           .incarnation = {1},
                           .id = request.spec->id,
                           .epoch = {request.epoch.value - 1}};
  decode_.On(PlaceDecodeCalled{{5}, asked}, now_);
  ASSERT_EQ(Of<AnswerPlaceDecode>().size(), 1u);
  EXPECT_TRUE(absl::IsFailedPrecondition(Of<AnswerPlaceDecode>()[0].reply.status));
  asked.id.serial = 9;
  decode_.On(PlaceDecodeCalled{{5}, asked}, now_);
  EXPECT_TRUE(absl::IsNotFound(Of<AnswerPlaceDecode>()[1].reply.status));
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
