// OrchestratorCore under load: what is admitted, refused and parked, with a latency profile and
// without one.
#include <string>

#include "scheduler/orchestrator/testing/planning_testing.h"

namespace skein::scheduler {
namespace {

class ParkingTest : public PlanningTest, public ::testing::WithParamInterface<const char*> {
 protected:
  ParkingTest() { std::string(GetParam()) == "none" ? MakeWithoutProfile() : Make(GetParam()); }
  // Prefill instances that hold `prefill` requests each, and one decode instance.
  void UpWith(int instances, int64_t prefill, int64_t decode) {
    max_requests_ = decode;
    decode_ = Up(Role::kDecode, 2);
    max_requests_ = prefill;
    prefill_ = UpPrefill(instances);
  }
  // Of one instance, whatever the policy.
  Effects SubmitAlone(uint64_t serial, TimeUs deadline_us = 0) {
    auto spec = Spec(serial, 40);
    spec->want_prompt_logprobs = true;
    spec->deadline_us = deadline_us;
    return Do(SubmitCalled{spec});
  }
  int64_t Parked() { return core_->Snapshot(now_).parked; }

  std::vector<InstanceId> prefill_;
  InstanceId decode_;
};

TEST_P(ParkingTest, MoreThanTheInstancesHoldIsRefusedBeforeAnythingIsBegun) {
  UpWith(2, 2, 3);  // 7 together
  for (uint64_t serial = 1; serial <= 7; ++serial) {
    EXPECT_TRUE(Updates<Failed>(SubmitAlone(serial)).empty()) << serial;
  }
  const Effects refused = SubmitAlone(8);
  ASSERT_EQ(Updates<Failed>(refused).size(), 1u);
  EXPECT_EQ(
      Updates<Failed>(refused)[0].status,
      absl::ResourceExhaustedError(
          "The request limit of model 'm' is reached (7, what its instances hold). Retry later."));
  EXPECT_TRUE(Updates<Planned>(refused).empty());
  EXPECT_TRUE(Updates<Accepted>(refused).empty());
  EXPECT_TRUE(Of<CallAssign>(refused).empty());
  EXPECT_EQ(core_->Snapshot(now_).refused, 1u);
  EXPECT_EQ(core_->Snapshot(now_).failed, 0u);
  Do(Closed({7, 7}));
  EXPECT_TRUE(Updates<Failed>(SubmitAlone(9)).empty());
}

// What it still holds takes no room of the others.
TEST_P(ParkingTest, ADrainingInstanceLowersTheLimitByItsFreeRoomOnly) {
  UpWith(2, 2, 3);
  for (uint64_t serial = 1; serial <= 4; ++serial) SubmitAlone(serial);
  Report(prefill_[0], {}, {}, /*draining=*/true);  // it goes on with the two that it has
  for (uint64_t serial = 5; serial <= 7; ++serial) {
    EXPECT_TRUE(Updates<Failed>(SubmitAlone(serial)).empty()) << serial;
  }
  EXPECT_EQ(Updates<Failed>(SubmitAlone(8)).size(), 1u);
}

TEST_P(ParkingTest, WhatNoInstanceHasRoomForIsParkedAndPlannedInOrder) {
  UpWith(1, 2, 3);
  const auto first = Of<CallAssign>(SubmitAlone(1)).at(0);
  SubmitAlone(2);
  const Effects third = SubmitAlone(3);
  EXPECT_TRUE(Of<CallAssign>(third).empty());
  EXPECT_EQ(Updates<Accepted>(third).size(), 1u);  // it is not refused
  SubmitAlone(4);
  EXPECT_EQ(Parked(), 2);
  EXPECT_EQ(core_->Totals().models.at("m").waiting_here, 2);
  Answer(first);
  const auto next = Of<CallAssign>(Report(prefill_[0], {}, {Ended(first)}));
  ASSERT_EQ(next.size(), 1u);
  EXPECT_EQ(next[0].request.spec->id, (RequestId{7, 3}));
  Do(Closed({7, 2}));  // its place is free
  EXPECT_EQ(Parked(), 0);
  constexpr auto kParked = static_cast<size_t>(Degraded::kParked);
  EXPECT_EQ(core_->Explain("cmpl-1", now_).at(0).degraded[kParked], 0u);
  EXPECT_EQ(core_->Explain("cmpl-3", now_).at(0).degraded[kParked], 1u);
  EXPECT_EQ(core_->Snapshot(now_).degraded[kParked], 2u);
}

TEST_P(ParkingTest, ARefusedAssignIsTriedAgainAsOftenAsItTakes) {
  UpWith(2, 0, 0);  // neither says how much it holds
  Effects effects = SubmitAlone(1);
  int assigns = 0;
  for (int i = 0; i < 40; ++i) {
    for (const CallAssign& assign : Of<CallAssign>(effects)) {
      ++assigns;
      effects = Answer(assign, absl::ResourceExhaustedError("the prefill queue is full"));
      EXPECT_TRUE(Updates<Failed>(effects).empty());
    }
    if (Of<CallAssign>(effects).empty()) {
      EXPECT_EQ(Parked(), 1);
      effects = Report(prefill_[i % 2]);
    }
  }
  EXPECT_GT(assigns, 20);  // more than replans are allowed
  const auto last = Of<CallAssign>(effects);
  ASSERT_EQ(last.size(), 1u);
  Placed(last);
  EXPECT_EQ(core_->Snapshot(now_).placed, 1);
}

TEST_P(ParkingTest, AnInstanceThatCannotBeReachedIsTriedAgainAfterItsNextReport) {
  UpWith(1, 8, 8);
  for (int i = 0; i < 10; ++i) {
    const auto assign =
        i == 0 ? Of<CallAssign>(SubmitAlone(1)) : Of<CallAssign>(Report(prefill_[0]));
    ASSERT_EQ(assign.size(), 1u);
    const Effects late = Answer(assign[0], absl::DeadlineExceededError("late"));
    EXPECT_TRUE(Updates<Failed>(late).empty());
    ASSERT_EQ(Of<CallCancel>(late).size(),
              2u);  // it may have been executed; and at the decode instance
  }
  EXPECT_EQ(Parked(), 1);
}

TEST_P(ParkingTest, ASuspectInstanceGetsNothingNewUntilItsNextReport) {
  UpWith(2, 0, 0);
  const InstanceId other_decode = Up(Role::kDecode, 3);
  step_age_us_ = 3 * kSecondUs;
  step_estimate_us_ = 10'000;
  Report(prefill_[0]);
  Report(decode_);
  for (uint64_t serial = 1; serial <= 4; ++serial) {
    const Effects effects = SubmitAlone(serial);
    ASSERT_EQ(Of<CallAssign>(effects).size(), 1u);
    ASSERT_EQ(Of<CallAnnounce>(effects).size(), 1u);
    EXPECT_EQ(Of<CallAssign>(effects)[0].instance, prefill_[1]);
    EXPECT_EQ(Of<CallAnnounce>(effects)[0].instance, other_decode);
  }
  step_age_us_ = step_estimate_us_ = 0;
  Report(prefill_[0]);
  Report(decode_);
  const Effects next = SubmitAlone(5);
  EXPECT_EQ(Of<CallAssign>(next).at(0).instance, prefill_[0]);
  EXPECT_EQ(Of<CallAnnounce>(next).at(0).instance, decode_);
}

// There it would wait until the instance has ended.
TEST_P(ParkingTest, WhatASuspectInstanceHasNotBegunGoesToAnother) {
  UpWith(1, 0, 0);
  const auto begun = Of<CallAssign>(SubmitAlone(1));
  Placed(begun);
  const CallAssign queued = Of<CallAssign>(SubmitAlone(2)).at(0);
  Answer(queued);
  step_age_us_ = 3 * kSecondUs;
  step_estimate_us_ = 10'000;
  const std::vector<HeldRequest> held = {Held(begun[0]), Held(queued)};
  EXPECT_TRUE(Of<CallCancel>(Report(prefill_[0], held)).empty()) << "there is no other instance";
  step_age_us_ = step_estimate_us_ = 0;
  const InstanceId other = Up(Role::kPrefill, 9);
  step_age_us_ = 4 * kSecondUs;
  step_estimate_us_ = 10'000;
  bool cancelled = false;
  for (const CallCancel& cancel : Of<CallCancel>(Report(prefill_[0], held))) {
    EXPECT_EQ(cancel.request.id, queued.request.spec->id);
    cancelled |= cancel.instance == prefill_[0];
  }
  EXPECT_TRUE(cancelled);
  const auto again = Of<CallAssign>(Report(prefill_[0], {held[0]}, {Ended(queued)}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].instance, other);
  EXPECT_FALSE(again[0].request.suspect) << "nothing speaks against it";
  EXPECT_TRUE(Of<CallCancel>(Report(prefill_[0], {held[0]})).empty()) << "once";
}

TEST_P(ParkingTest, AParkedRequestEndsAtItsDeadline) {
  UpWith(1, 1, 3);
  SubmitAlone(1);
  SubmitAlone(2, kSecondUs);
  EXPECT_EQ(Parked(), 1);
  const auto failed = Updates<Failed>(Until(kSecondUs + 1));
  ASSERT_EQ(failed.size(), 1u);
  EXPECT_TRUE(absl::IsDeadlineExceeded(failed[0].status));
  EXPECT_EQ(Parked(), 0);
}

TEST_P(ParkingTest, AProcessThatIsReplacedLosesNothingThatIsParked) {
  UpWith(1, 1, 8);
  SubmitAlone(1);
  SubmitAlone(2);
  WorkerIdentity again = Identity(Role::kPrefill, 500);
  again.endpoint = Identity(Role::kPrefill, last_incarnation_).endpoint;
  const Effects replaced = Do(RegisterCalled{Call(), {again}});
  EXPECT_TRUE(Updates<Failed>(replaced).empty());
  EXPECT_EQ(Of<CallAssign>(replaced).at(0).request.spec->id, (RequestId{7, 1}));
}

TEST_P(ParkingTest, WithoutAnyPrefillInstanceNothingWaits) {
  UpWith(1, 1, 8);
  SubmitAlone(1);
  SubmitAlone(2);
  const Effects gone = Do(UnregisterCalled{Call(), {prefill_[0], incarnations_[prefill_[0]]}});
  ASSERT_EQ(Updates<Failed>(gone).size(), 2u);
  for (const Failed& failed : Updates<Failed>(gone)) {
    EXPECT_TRUE(absl::IsUnavailable(failed.status));
  }
}

TEST_P(ParkingTest, AFullDecodeInstanceIsAskedAgainAsOftenAsNeeded) {
  UpWith(1, 8, 8);
  const auto assign = Of<CallAssign>(SubmitAlone(1)).at(0);
  Answer(assign);
  for (int i = 0; i < 10; ++i) {
    const Effects full = Ask(assign, decode_, absl::ResourceExhaustedError("blocks"));
    EXPECT_TRUE(Updates<Failed>(full).empty());
    EXPECT_TRUE(Of<CallCancel>(full).empty());  // it would refuse this epoch from then on
    EXPECT_EQ(PlacedAt(Report(decode_)), decode_);
  }
  EXPECT_EQ(Updates<skein::scheduler::Placed>(Opened(decode_, assign)).size(), 1u);
}

// Both were tried, and one of them told to cancel this epoch: the other leaves.
TEST_P(ParkingTest, WhenEachDecodeInstanceWasTriedThePlanIsMadeAnew) {
  UpWith(1, 8, 8);
  const InstanceId other = Up(Role::kDecode, 3);
  const auto assign = Of<CallAssign>(SubmitAlone(1)).at(0);
  Answer(assign);
  const InstanceId first = assign.request.placed->decode;
  const InstanceId second = PlacedAt(Ask(assign, first, absl::DeadlineExceededError("late")));
  EXPECT_EQ(second, first == other ? decode_ : other);
  Effects effects = Ask(assign, second, absl::DeadlineExceededError("late"));
  EXPECT_TRUE(Updates<Failed>(effects).empty());
  EXPECT_EQ(Of<AnswerPlaceDecode>(effects).at(0).reply.status.code(),
            absl::StatusCode::kFailedPrecondition);
  Do(UnregisterCalled{Call(), {second, incarnations_[second]}});
  effects = Report(prefill_[0], {}, {Ended(assign, absl::CancelledError("planned anew"))});
  const auto again = Of<CallAssign>(effects);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].request.placed->decode, first);
  EXPECT_EQ(core_->Snapshot(now_).failed, 0u);
}

INSTANTIATE_TEST_SUITE_P(Policies, ParkingTest,
                         ::testing::Values("none", "tetris", "rolling", "greedy", "fixed2"),
                         [](const auto& policy) { return std::string(policy.param); });

}  // namespace
}  // namespace skein::scheduler
