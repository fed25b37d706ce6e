// OrchestratorCore and requests that their router tries again: the next attempt goes elsewhere.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "scheduler/orchestrator/testing/plain_testing.h"

namespace skein::scheduler {
namespace {

class ResumedTest : public OrchestratorCoreTest {
 protected:
  void SetUp() override {
    Up(Role::kPrefill, 1);
    freest_ = Up(Role::kDecode, 2);
    other_ = Up(Role::kDecode, 3);
    Report(other_, 3, {}, {}, /*free_blocks=*/5);
  }
  // Placed at the freest instance; its router loses it there.
  void Lose() {
    const CallAssign assign = Place(1);
    EXPECT_EQ(assign.request.placed->decode, freest_);
    EndAttempt(first_);
  }
  void EndAttempt(RequestId attempt) {
    Do(RouterEnded{{.id = attempt, .how = RouterEnd::How::kResumed, .why = "connection lost"}});
    Report(freest_, 2);
    Report(other_, 3, {}, {}, /*free_blocks=*/5);
  }
  // Where the plan of this attempt goes.
  InstanceId Resubmit(uint64_t attempt) {
    auto spec = std::make_shared<RequestHead>(*Spec(1));
    spec->id = first_.Attempt(attempt);
    const Effects effects = Do(SubmitCalled{.spec = spec, .accepted = true});
    const auto assigns = Of<CallAssign>(effects);
    if (assigns.size() != 1 || !assigns[0].request.placed.has_value()) return {};
    const CallAssign& assign = assigns[0];
    Do(AssignReplied{assign.instance, spec->id, assign.request.epoch, {}, assign.request.sequence});
    Opened(assign);
    return assign.request.placed->decode;
  }

  const RequestId first_{7, 1};
  InstanceId freest_, other_;
};

TEST_F(ResumedTest, TheNextAttemptGoesToAnotherInstance) {
  Lose();
  EXPECT_EQ(Resubmit(1), other_);
}

TEST_F(ResumedTest, NorToOneThatItsRouterDidNotTry) {
  EXPECT_EQ(Submit(1).request.placed->decode, freest_);
  EndAttempt(first_);
  EXPECT_EQ(Resubmit(1), other_);
}

TEST_F(ResumedTest, ItGoesBackWhenItWasLostEverywhere) {
  Lose();
  EXPECT_EQ(Resubmit(1), other_);
  EndAttempt(first_.Attempt(1));
  EXPECT_EQ(Resubmit(2), freest_);
}

TEST_F(ResumedTest, ItGoesBackWhenNoOtherTakesRequests) {
  Lose();
  Do(DrainCalled{Call(), {.instance = other_}});
  EXPECT_EQ(Resubmit(1), freest_);
}

TEST_F(ResumedTest, OtherRequestsGoWhereTheyWould) {
  Lose();
  EXPECT_EQ(Submit(2).request.placed->decode, freest_);
}

// Of two prefill instances, the one that computed a prompt may have kept it (KeptPrompts).
class KeptPromptTest : public ResumedTest {
 protected:
  void SetUp() override {
    ResumedTest::SetUp();
    second_ = Up(Role::kPrefill, 4);
  }
  // The first attempt, whose KV its decode instance has.
  CallAssign Prefill() {
    CallAssign assign = Place(1);
    const uint64_t incarnation = assign.instance == second_ ? 4 : 1;
    Report(assign.instance, incarnation, {}, {{.id = first_, .epoch = assign.request.epoch}});
    return assign;
  }
  // Which is not opened yet.
  CallAssign SubmitAttempt(uint64_t attempt) {
    auto spec = std::make_shared<RequestHead>(*Spec(1));
    spec->id = first_.Attempt(attempt);
    const auto assigns = Of<CallAssign>(Do(SubmitCalled{.spec = spec, .accepted = true}));
    EXPECT_EQ(assigns.size(), 1u);
    return assigns.at(0);
  }

  InstanceId second_;
};

TEST_F(KeptPromptTest, TheNextAttemptGoesToWhereThePromptWasComputed) {
  const CallAssign first = Prefill();
  EndAttempt(first_);
  EXPECT_EQ(Submit(2).instance, first.instance) << "it is busy, and the other one is idle";
  EXPECT_EQ(SubmitAttempt(1).instance, first.instance);
}

// The orchestrator noticed first.
TEST_F(KeptPromptTest, AnAttemptThatThisEndedIsNotForgotten) {
  const CallAssign first = Prefill();
  Do(UnregisterCalled{Call(), {freest_, {2}}});
  Do(RouterEnded{{.id = first_, .how = RouterEnd::How::kResumed, .why = "it failed"}});
  Report(other_, 3);
  EXPECT_EQ(Submit(2).instance, first.instance);
  EXPECT_EQ(SubmitAttempt(1).instance, first.instance);
}

TEST_F(KeptPromptTest, AnInstanceThatLeavesIsNotWaitedFor) {
  const CallAssign first = Prefill();
  EndAttempt(first_);
  Do(DrainCalled{Call(), {.instance = first.instance}});
  EXPECT_NE(SubmitAttempt(1).instance, first.instance);
}

TEST_F(KeptPromptTest, APromptThatWasNotComputedIsNowhere) {
  const CallAssign first = Place(1);
  EndAttempt(first_);
  EXPECT_EQ(Submit(2).instance, first.instance);
  EXPECT_NE(SubmitAttempt(1).instance, first.instance) << "that one is busy";
}

TEST_F(KeptPromptTest, OneThatCannotTakeThePlanIsPassedOver) {
  const CallAssign first = Prefill();
  EndAttempt(first_);
  const CallAssign assign = SubmitAttempt(1);
  EXPECT_EQ(assign.instance, first.instance);
  const auto again = Of<CallAssign>(
      Do(AssignReplied{assign.instance, first_.Attempt(1), assign.request.epoch,
                       absl::ResourceExhaustedError("full"), assign.request.sequence}));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_NE(again[0].instance, first.instance);
}

}  // namespace
}  // namespace skein::scheduler
