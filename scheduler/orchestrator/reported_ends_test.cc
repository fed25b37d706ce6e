#include "scheduler/orchestrator/reported_ends.h"

#include <gtest/gtest.h>

#include "scheduler/orchestrator/testing/parts_testing.h"

namespace skein::scheduler::orchestrator {
namespace {

class ReportedEndsTest : public PartsTest {
 protected:
  ReportedEndsTest() : prefill_at_(Join(Role::kPrefill, 1)), decode_at_(Join(Role::kDecode, 2)) {}

  void Report(InstanceId from, const EndedRequest& ended) {
    effects_.clear();
    reported_.Take(*registry_.Find(from), ended, now_);
  }
  // Of the request as it is planned now.
  static EndedRequest EndOf(const Request& request, absl::Status status) {
    return {.id = request.spec->id, .epoch = request.epoch, .status = std::move(status)};
  }

  const InstanceId prefill_at_;
  const InstanceId decode_at_;
  ReportedEnds reported_{{.requests = &requests_,
                          .registry = &registry_,
                          .numbers = &numbers_,
                          .prefill = &prefill_,
                          .decode = &decode_,
                          .replanner = &replanner_,
                          .routers = &routers_,
                          .explanations = &explanations_,
                          .ends = this,
                          .effects = &effects_}};
};

// Its router submits it again, and has not yet.
TEST_F(ReportedEndsTest, AFailureUnderAnotherOrchestratorsRequestIsKept) {
  const Epoch former{numbers_.first_epoch() - 1};
  const Epoch own{numbers_.first_epoch()};
  Report(prefill_at_, {.id = {7, 1}, .epoch = former, .engine_failed = true});
  Report(prefill_at_, {.id = {7, 2}, .epoch = former});
  Report(prefill_at_, {.id = {7, 3}, .epoch = own, .engine_failed = true});
  EXPECT_EQ(reported_.TakeEarlyFailures({7, 1}),
            (EarlyFailures::Engines{{Incarnation{1}, prefill_at_}}));
  EXPECT_TRUE(reported_.TakeEarlyFailures({7, 1}).empty()) << "taken";
  EXPECT_TRUE(reported_.TakeEarlyFailures({7, 2}).empty()) << "the engine works";
  EXPECT_TRUE(reported_.TakeEarlyFailures({7, 3}).empty()) << "it has ended here";
}

// The two do not reach each other, and both reach this orchestrator.
TEST_F(ReportedEndsTest, AHandoffThatWasNotCompletedBarsThePair) {
  Request& request = Submit(1);
  Accept(request);
  Open(request);
  Report(prefill_at_, EndOf(request, absl::UnavailableError("the handoff failed: timeout")));
  EXPECT_EQ(decode_.pairs().barred(), 1);
  decode_.NoteReached(prefill_at_, decode_at_);

  Request& expired = Submit(2);
  Accept(expired);
  Open(expired);
  Report(decode_at_, EndOf(expired, absl::UnavailableError("the writer's lease expired")));
  EXPECT_EQ(decode_.pairs().barred(), 1);
}

TEST_F(ReportedEndsTest, ARingThatBrokeBarsItsMembersAsPairs) {
  const InstanceId other = Join(Role::kPrefill, 3);
  Request& request = Submit(1);
  prefill_.ForgetPlan(request, now_);
  request.members = {{.instance = prefill_at_}, {.instance = other}};
  EndedRequest ended = EndOf(request, absl::UnavailableError("the peer does not answer"));
  ended.ring_broken = true;
  Report(other, ended);
  EXPECT_EQ(prefill_.ring_pairs().barred(), 1);
  EXPECT_TRUE(prefill_.ring_pairs().BarredFor(prefill_at_).contains(other));
  prefill_.ForgetInstance(other);
  EXPECT_EQ(prefill_.ring_pairs().barred(), 0);
}

// A group ended with the request; the decode instance's own report comes later.
TEST_F(ReportedEndsTest, ARequestThatItsDecodeInstanceHadEndedIsPlannedAgain) {
  Request& request = Submit(1);
  Accept(request);
  Open(request);
  const Epoch before = request.epoch;
  Report(prefill_at_, EndOf(request, absl::CancelledError("the request has ended")));
  ASSERT_NE(requests_.Find({7, 1}), nullptr) << "it has not failed";
  EXPECT_TRUE(replanner_.IsGivenUp({7, 1}, before) || request.epoch != before);
  EXPECT_EQ(decode_.pairs().barred(), 0) << "they reach each other";
}

TEST_F(ReportedEndsTest, AHandoffThatWasCommittedForgetsThePair) {
  decode_.NoteUnreached(prefill_at_, decode_at_, now_);
  Request& request = Submit(1);
  Accept(request);
  Open(request);
  Report(prefill_at_, EndOf(request, absl::OkStatus()));
  EXPECT_EQ(decode_.pairs().barred(), 0);

  Request& doubtful = Submit(2);
  Accept(doubtful);
  Open(doubtful);
  EndedRequest ended = EndOf(doubtful, absl::OkStatus());
  ended.handoff.commit_unanswered = true;
  Report(prefill_at_, ended);
  EXPECT_EQ(decode_.pairs().barred(), 1);
}

TEST_F(ReportedEndsTest, AnEngineThatFailedBarsNoPair) {
  Request& request = Submit(1);
  Accept(request);
  Open(request);
  EndedRequest ended = EndOf(request, absl::UnavailableError("the engine failed"));
  ended.engine_failed = true;
  Report(prefill_at_, ended);
  EXPECT_EQ(decode_.pairs().failures(), 0u);
}

TEST_F(ReportedEndsTest, AnEndUnderAnOlderEpochOrOfAnotherInstanceChangesNothing) {
  Request& request = Submit(1);
  Accept(request);
  Open(request);
  EndedRequest ended = EndOf(request, absl::UnavailableError("gone"));
  ended.epoch = {request.epoch.value - 1};
  Report(decode_at_, ended);
  ended.epoch = request.epoch;
  Report(Join(Role::kDecode, 3), ended);
  EXPECT_EQ(request.state, State::kPlaced);
  EXPECT_TRUE(ends_.empty());
}

// The decode instance had all KV: it has not lost the answer for want of some.
TEST_F(ReportedEndsTest, AnEngineThatFailsUnderAnAnswerEndsIt) {
  Request& request = Submit(1);
  Accept(request);
  Open(request);
  EndedRequest ended = EndOf(request, absl::UnavailableError("the engine failed"));
  ended.engine_failed = true;
  Report(decode_at_, ended);
  ASSERT_EQ(ends_.size(), 1u);
  EXPECT_EQ(ends_[0].rfind("1 failed: the engine failed", 0), 0u) << ends_[0];
}

// Not all of its KV is known to have come.
TEST_F(ReportedEndsTest, AnEndBeforeTheKvWasWholeIsPlannedAgain) {
  Request& request = Submit(1);
  Accept(request);
  Open(request);
  Report(decode_at_, EndOf(request, absl::UnavailableError("the writer's lease expired")));
  EXPECT_TRUE(ends_.empty());
  EXPECT_EQ(request.replans, 1);
}

// The worker's report overtakes what the router says to this orchestrator.
TEST_F(ReportedEndsTest, ARouterThatClosedItsStreamBarsNoPair) {
  Request& request = Submit(1);
  Accept(request);
  Open(request);
  EndedRequest ended = EndOf(request, absl::CancelledError("the router has detached"));
  ended.reason = FinishReason::kCancelled;
  Report(decode_at_, ended);
  EXPECT_EQ(decode_.pairs().failures(), 0u);
}

}  // namespace
}  // namespace skein::scheduler::orchestrator
