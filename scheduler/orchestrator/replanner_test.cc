#include "scheduler/orchestrator/replanner.h"

#include <gtest/gtest.h>

#include "scheduler/orchestrator/testing/parts_testing.h"

namespace skein::scheduler::orchestrator {
namespace {

class ReplannerTest : public PartsTest {
 protected:
  ReplannerTest() {
    prefill_one_ = Join(Role::kPrefill, 1);
    prefill_two_ = Join(Role::kPrefill, 2);
    Join(Role::kDecode, 3);
  }
  static absl::Status Lost() { return absl::UnavailableError("lost"); }

  InstanceId prefill_one_;
  InstanceId prefill_two_;
};

TEST_F(ReplannerTest, ARequestIsPlannedAgainWhenItsPlanHasEndedEverywhere) {
  Request& request = Submit(1);
  Accept(request);
  const InstanceId at = request.members[0].instance;
  const Epoch left = request.epoch;
  effects_.clear();
  replanner_.GiveUpPlan(request, Lost(), now_);
  EXPECT_EQ(request.state, State::kReplanning);
  EXPECT_EQ(request.decode, InstanceId{});
  EXPECT_EQ(Of<CallCancel>().size(), 2u) << "at its prefill and its decode instance";
  EXPECT_TRUE(replanner_.IsGivenUp(request.spec->id, left));
  EXPECT_TRUE(replanner_.CheckInvariants().ok());

  replanner_.HasLeft(request, at == prefill_one_ ? prefill_two_ : prefill_one_, now_);
  EXPECT_EQ(request.state, State::kReplanning) << "that one never had it";
  replanner_.HasLeft(request, at, now_);
  EXPECT_EQ(request.state, State::kAssigning);
  EXPECT_GT(request.epoch, left);
  EXPECT_EQ(request.replans, 0) << "no fault of the request";
}

TEST_F(ReplannerTest, AnInstanceThatHoldsOnlyOthersHasLeft) {
  Request& request = Submit(1);
  Accept(request);
  const InstanceId at = request.members[0].instance;
  const HeldRequest held{.id = request.spec->id, .epoch = request.epoch};
  replanner_.GiveUpPlan(request, Lost(), now_);
  replanner_.HasOnly(at, {held}, now_);
  EXPECT_EQ(request.state, State::kReplanning);
  replanner_.HasOnly(at, {{.id = {7, 9}, .epoch = held.epoch}}, now_);
  EXPECT_EQ(request.state, State::kAssigning);
}

TEST_F(ReplannerTest, AnInstanceThatIsLostHasLeftAndCountsIfItsProcessEnded) {
  for (const bool ended : {false, true}) {
    const uint64_t serial = ended ? 2 : 1;
    Request& request = Submit(serial);
    Accept(request);
    Open(request);
    const InstanceId at = request.members[0].instance;
    replanner_.GiveUpPlan(request, Lost(), now_);
    replanner_.HasLost(at, ended ? Incarnation{101} : Incarnation{}, now_);
    EXPECT_EQ(request.state, State::kAssigning);
    EXPECT_EQ(request.failures.failed_or_lost(), ended ? 1 : 0);
    End(request, "closed");
  }
}

TEST_F(ReplannerTest, TheSilentAreLeftAfterALeaseAndTriedLast) {
  Request& request = Submit(1);
  Accept(request);
  const InstanceId at = request.members[0].instance;
  replanner_.GiveUpPlan(request, Lost(), now_);
  for (const TimeUs end = now_ + kLeaseUs * 5 / 4; now_ < end; now_ += kLeaseUs / 16) {
    for (const InstanceId id : registry_.Listened(now_)) FAIL() << id.value;
    for (const uint64_t one : {1, 2, 3}) {  // they are alive, but do not say that it has ended
      const Instance& instance = *registry_.FindConnected({one});
      registry_.Report({.instance = instance.id, .incarnation = {one}, .load = instance.load}, now_)
          .IgnoreError();
    }
    replanner_.LeaveTheSilent(now_);
  }
  EXPECT_EQ(request.state, State::kAssigning);
  EXPECT_NE(request.members[0].instance, at);
}

TEST_F(ReplannerTest, ARequestFailsAfterTooManyReplans) {
  Request* request = &Submit(1);
  for (int i = 0; i < kReplansMax; ++i) {
    const InstanceId at = request->members[0].instance;
    replanner_.Replan(*request, Lost(), now_);
    EXPECT_EQ(request->state, State::kReplanning);
    replanner_.HasLeft(*request, at, now_);
  }
  replanner_.Replan(*request, Lost(), now_);
  EXPECT_EQ(ends_, std::vector<std::string>{"1 failed: lost"});
}

TEST_F(ReplannerTest, ARequestUnderWhichTwoEnginesFailedIsNotPlannedAThirdTime) {
  Request& request = Submit(1);
  request.failures.Fail({101}, prefill_one_);
  EXPECT_FALSE(replanner_.FailSuspect(request));
  request.failures.Lose({101}, prefill_one_);
  EXPECT_FALSE(replanner_.FailSuspect(request)) << "the same engine";
  request.failures.Fail({102}, prefill_two_);
  replanner_.Replan(request, Lost(), now_);
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].rfind("1 failed: 2 engines failed", 0), 0u) << ends_[0];
}

TEST_F(ReplannerTest, WhatWouldFailAnywhereIsNotWorthAnotherPlan) {
  Request& request = Submit(1);
  EXPECT_TRUE(Replanner::MayReplan(request, absl::UnavailableError("")));
  EXPECT_TRUE(Replanner::MayReplan(request, absl::FailedPreconditionError("not a writer")));
  EXPECT_FALSE(Replanner::MayReplan(request, absl::InternalError("NaN")));
  EXPECT_FALSE(Replanner::MayReplan(request, absl::NotFoundError("")));
  request.sequence_parallel = true;  // a member's failure comes with any status
  EXPECT_TRUE(Replanner::MayReplan(request, absl::NotFoundError("")));
  EXPECT_FALSE(Replanner::MayReplan(request, absl::InternalError("NaN")));
  request.sequence_parallel = false;
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
