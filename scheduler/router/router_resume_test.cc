// Further attempts at requests whose instances were lost (router_core.h, attempt_losses.h).
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "scheduler/router/retry_budget.h"
#include "scheduler/router/testing/router_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::kGeneration;
using testing::RouterCoreTest;
using testing::Spec;

HeadPtr HeadOf(const RequestHead& asked, RequestId id, std::span<const int32_t> sent) {
  auto head = std::make_shared<RequestHead>(asked);
  head->id = id;
  head->prompt_tokens += static_cast<int64_t>(sent.size());
  head->max_tokens -= static_cast<int64_t>(sent.size());
  head->encoded = std::make_shared<const std::string>(absl::StrJoin(sent, ","));
  return head;
}

RouterConfig Config() { return {.max_streams = 2, .max_queued = 1, .head_of_attempt = HeadOf}; }

class RouterResumeTest : public RouterCoreTest {
 protected:
  RouterResumeTest() : RouterCoreTest(Config()) {}

  // Brings an attempt that was submitted to a token stream.
  void PlaceAttempt(RequestId id) {
    Do(PlanUpdateReceived{id, Planned{{5}, {1}}});
    const auto opened = Of<OpenTokens>(Do(PlanUpdateReceived{id, Placed{{5}, {2}, "d:2"}}));
    ASSERT_EQ(opened.size(), 1u);
    EXPECT_EQ(opened[0].id, id);
  }
  std::vector<RouterEffect> TokenOf(RequestId id, int64_t index, int32_t token = 42) {
    return Do(TokenReceived{id, {5}, index, token, "", ""});
  }
  std::vector<RouterEffect> Lose(RequestId id) {
    return Do(TokenStreamLost{id, {5}, absl::UnavailableError("the instance died")});
  }
  // The attempt that a loss led to, and what else it did.
  static std::optional<SendSubmit> Submitted(const std::vector<RouterEffect>& effects) {
    const auto submits = Of<SendSubmit>(effects);
    EXPECT_LE(submits.size(), 1u);
    return submits.empty() ? std::nullopt : std::optional(submits[0]);
  }

  // Lets time pass until an attempt begins. The orchestrator takes the router's reports meanwhile.
  std::optional<SendSubmit> AwaitSubmit() {
    for (int ticks = 0; ticks < 1000; ++ticks) {
      now_ = core_.NextDeadline();
      const auto effects = Do(RouterTick{});
      if (auto submit = Submitted(effects)) return submit;
      if (!Of<SendRouterReport>(effects).empty()) Do(RouterReportTaken{});
    }
    return std::nullopt;
  }

  const RequestId first_{7, 1};
};

TEST_F(RouterResumeTest, ALostStreamGoesOnBehindWhatItsClientHas) {
  Place(1);
  TokenOf(first_, 0, 10);
  TokenOf(first_, 1, 11);
  const auto effects = Lose(first_);
  EXPECT_TRUE(Of<End>(effects).empty());
  const auto submit = Submitted(effects);
  ASSERT_TRUE(submit.has_value());
  EXPECT_EQ(submit->spec->id, first_.Attempt(1));
  EXPECT_EQ(*submit->spec->encoded, "10,11");
  EXPECT_EQ(submit->spec->max_tokens, 2);
  EXPECT_TRUE(submit->accepted) << "it must not be refused now";
  ASSERT_EQ(Of<SendRouterEnd>(effects).size(), 1u);
  const RouterEnd told = Of<SendRouterEnd>(effects)[0].end;
  EXPECT_EQ(told.id, first_);
  EXPECT_EQ(told.how, RouterEnd::How::kResumed);
  EXPECT_EQ(told.why, "the instance died; it goes on as request 7/1.1");

  PlaceAttempt(first_.Attempt(1));
  EXPECT_TRUE(TokenOf(first_, 2).empty()) << "of the attempt that was lost";
  const auto token = Of<DeliverToken>(TokenOf(first_.Attempt(1), 0, 12));
  ASSERT_EQ(token.size(), 1u);
  EXPECT_EQ(token[0].id, first_);
  EXPECT_EQ(token[0].index, 2);
  TokenOf(first_.Attempt(1), 1, 13);
  const auto ended =
      Do(FinishedReceived{first_.Attempt(1), {5}, FinishReason::kLength, {}, 2, -1, ""});
  const End end = Of<End>(ended).at(0);
  EXPECT_EQ(end.id, first_);
  EXPECT_TRUE(end.status.ok());
  EXPECT_EQ(end.output_tokens, 4);
  EXPECT_EQ(end.prompt_tokens, 3);
  EXPECT_EQ(Of<SendRouterEnd>(ended).at(0).end.output_tokens, 2) << "of this attempt";
  EXPECT_EQ(core_.Snapshot().resumes, 1u);
}

// Its instance lives, and only the stream broke: the token that the client of token streams asked
// for again is compared, and dropped.
TEST_F(RouterResumeTest, ATokenThatComesAgainIsNotDelivered) {
  const auto again = [this](RequestId id, int64_t index, int32_t token) {
    return Do(TokenReceived{id, {5}, index, token, "", "prompt", {}, /*again=*/true});
  };
  Place(1);
  TokenOf(first_, 0, 10);
  TokenOf(first_, 1, 11);
  EXPECT_TRUE(again(first_, 1, 11).empty());
  EXPECT_EQ(Of<DeliverToken>(TokenOf(first_, 2, 12)).at(0).index, 2);
  EXPECT_EQ(core_.Snapshot().reattached, 1u);
  Lose(first_);
  PlaceAttempt(first_.Attempt(1));
  EXPECT_EQ(Of<DeliverToken>(TokenOf(first_.Attempt(1), 0, 13)).at(0).index, 3);
  EXPECT_TRUE(again(first_.Attempt(1), 0, 13).empty()) << "by the indices of this attempt";
  EXPECT_EQ(core_.Snapshot().index_errors, 0u);
}

TEST_F(RouterResumeTest, ATokenThatComesAgainAndDiffersEndsTheRequest) {
  const std::vector<std::pair<int64_t, int32_t>> wrong = {{1, 12}, {0, 11}, {2, 11}, {-1, 11}};
  for (const auto& [index, token] : wrong) {
    Place(1);
    TokenOf(first_, 0, 10);
    TokenOf(first_, 1, 11);
    const uint64_t before = core_.Snapshot().index_errors;
    const auto effects = Do(TokenReceived{first_, {5}, index, token, "", "", {}, /*again=*/true});
    EXPECT_TRUE(absl::IsInternal(Of<End>(effects).at(0).status));
    EXPECT_EQ(core_.Snapshot().index_errors, before + 1);
  }
  EXPECT_EQ(core_.Snapshot().reattached, 0u);
}

// Without a latency profile the orchestrator plans nothing anew, and says that the request failed.
TEST_F(RouterResumeTest, SoDoesOneThatTheOrchestratorGivesUp) {
  Place(1);
  EXPECT_TRUE(Submitted(Do(PlanUpdateReceived{first_, Failed{absl::UnavailableError("lost")}})));
  Do(Arrived{Spec(2)});
  Do(PlanUpdateReceived{{7, 2}, Planned{{5}, {1}}});
  EXPECT_TRUE(Submitted(Do(PlanUpdateReceived{{7, 2}, PlanEnded{}})));
}

TEST_F(RouterResumeTest, APlanThatIsReplacedAfterTokensIsLost) {
  Place(1);
  TokenOf(first_, 0);
  const auto effects = Do(PlanUpdateReceived{first_, Planned{{9}, {1}}});
  EXPECT_EQ(Of<CloseTokens>(effects).size(), 1u);
  EXPECT_EQ(Submitted(effects)->spec->id, first_.Attempt(1));
}

TEST_F(RouterResumeTest, WhatTheRequestItselfFailsWithIsItsAnswer) {
  for (const absl::Status& status :
       {absl::InternalError("NaN"), absl::InvalidArgumentError("logit_bias")}) {
    Place(1);
    TokenOf(first_, 0);
    const auto effects = Do(FinishedReceived{first_, {5}, FinishReason::kError, status, 1, -1, ""});
    EXPECT_EQ(Of<End>(effects).at(0).status, status);
  }
  Place(2);
  const Failed condemned{absl::UnavailableError("three processes ended under it"), {}, true};
  EXPECT_EQ(Of<End>(Do(PlanUpdateReceived{{7, 2}, condemned})).at(0).status, condemned.status);
}

TEST_F(RouterResumeTest, WhatWasNotAcceptedIsRefusedAsBefore) {
  Do(Arrived{Spec(1)});
  const Failed none{absl::UnavailableError("no instance")};
  EXPECT_EQ(Of<End>(Do(PlanUpdateReceived{first_, none})).at(0).status, none.status);
}

TEST_F(RouterResumeTest, OnlyTheEndOfAWholeAnswerWasLost) {
  Place(1);
  for (int64_t i = 0; i < 4; ++i) TokenOf(first_, i);
  const End end = Of<End>(Lose(first_)).at(0);
  EXPECT_EQ(end.reason, FinishReason::kLength);
  EXPECT_EQ(end.output_tokens, 4);
}

// The instance that died may be named again before the orchestrator knows, and for a while there
// may be none.
TEST_F(RouterResumeTest, LaterAttemptsWaitLongerUntilTheTimeIsOver) {
  Place(1);
  TokenOf(first_, 0);
  ASSERT_TRUE(Submitted(Lose(first_)).has_value());
  std::vector<TimeUs> waits;
  for (uint64_t attempt = 1;; ++attempt) {
    ASSERT_LT(attempt, 100u);
    const RequestId id = first_.Attempt(attempt);
    const auto refused = Do(PlanUpdateReceived{id, Failed{absl::NotFoundError("no instance")}});
    if (!Of<End>(refused).empty()) {
      EXPECT_TRUE(absl::IsUnavailable(Of<End>(refused)[0].status)) << "it was accepted";
      break;
    }
    EXPECT_EQ(core_.StateOf(first_), "resuming");
    const TimeUs lost_us = now_;
    const auto next = AwaitSubmit();
    waits.push_back(now_ - lost_us);
    ASSERT_TRUE(next.has_value());
    EXPECT_EQ(next->spec->id, first_.Attempt(attempt + 1));
    EXPECT_EQ(*next->spec->encoded, "42");
  }
  EXPECT_EQ(waits[0], AttemptLosses::kFirstWaitUs);
  EXPECT_EQ(waits[1], 2 * AttemptLosses::kFirstWaitUs);
  EXPECT_LE(waits.back(), AttemptLosses::kLastWaitUs);
  EXPECT_GE(now_, 28 * kSecondUs);
  EXPECT_LE(now_, 30 * kSecondUs);
}

TEST(AttemptLosses, APlacementMakesTheTimeBeginAnew) {
  AttemptLosses losses;
  TimeUs now = 0;
  for (int i = 0; i < 50; ++i, now += 20 * kSecondUs) {
    EXPECT_TRUE(losses.Lose(now - AttemptLosses::kShortUs, 30 * kSecondUs, now));
    EXPECT_EQ(losses.begins_us(), now);
  }
}

// It may be the request that ends the processes which run it.
TEST(AttemptLosses, AttemptsThatEndSoonAreNotRepeatedForEver) {
  AttemptLosses losses;
  EXPECT_TRUE(losses.Lose(0, 30 * kSecondUs, 1));
  EXPECT_TRUE(losses.Lose(kNever, 30 * kSecondUs, 2)) << "it ran nowhere";
  EXPECT_TRUE(losses.Lose(2, 30 * kSecondUs, 3));
  EXPECT_FALSE(losses.Lose(3, 30 * kSecondUs, 4));

  AttemptLosses slow;
  TimeUs now = 0;
  int lost = 0;
  while (slow.Lose(now, 30 * kSecondUs, now + AttemptLosses::kShortUs)) {
    now += AttemptLosses::kShortUs;
    ASSERT_LT(++lost, 1000);
  }
  EXPECT_EQ(lost, AttemptLosses::kPlacedMax - 1);
}

TEST_F(RouterResumeTest, AClientMayLeaveAndADeadlineMayPassWhileNoAttemptRuns) {
  Place(1);
  TokenOf(first_, 0);
  Lose(first_);
  Do(PlanUpdateReceived{first_.Attempt(1), Failed{absl::UnavailableError("none")}});
  EXPECT_EQ(core_.StateOf(first_), "resuming");
  EXPECT_EQ(core_.Snapshot().submitted, 1);
  EXPECT_EQ(Of<End>(Do(ClientGone{first_})).size(), 1u);

  Do(Arrived{Spec(2, 300)});
  Do(PlanUpdateReceived{{7, 2}, Planned{{5}, {1}}});
  Do(PlanUpdateReceived{{7, 2}, PlanEnded{}});
  Do(PlanUpdateReceived{RequestId{7, 2}.Attempt(1), Failed{absl::UnavailableError("none")}});
  now_ = 300;
  const auto effects = Do(RouterTick{});
  EXPECT_TRUE(absl::IsDeadlineExceeded(Of<End>(effects).at(0).status));
}

TEST_F(RouterResumeTest, AnAttemptHasWhatIsLeftOfTheDeadline) {
  Do(Arrived{Spec(1, 3 * kSecondUs)});
  Do(PlanUpdateReceived{first_, Planned{{5}, {1}}});
  now_ += kSecondUs;
  const auto submit = Submitted(Do(PlanUpdateReceived{first_, PlanEnded{}}));
  ASSERT_TRUE(submit.has_value());
  EXPECT_EQ(submit->spec->deadline_us, 2 * kSecondUs);
}

TEST_F(RouterResumeTest, AStopStringEndsARequestThatIsBetweenTwoAttempts) {
  Place(1);
  TokenOf(first_, 0);
  Lose(first_);
  EXPECT_EQ(Of<End>(Do(StopMatched{first_})).at(0).reason, FinishReason::kStop);
}

// Its orchestrator is away: the attempt waits for one as any request does.
TEST_F(RouterResumeTest, AnAttemptWaitsForAnOrchestrator) {
  Place(1);
  TokenOf(first_, 0);
  Do(LinkBroken{absl::UnavailableError("connection lost")});
  EXPECT_FALSE(Submitted(Lose(first_)).has_value());
  Reopen();
  EXPECT_EQ(Submitted(Welcome({}, {4, {2}}))->spec->id, first_.Attempt(1));
}

// It is named by the id of the attempt.
TEST_F(RouterResumeTest, AnAttemptThatANewOrchestratorDoesNotKnowIsSubmittedAnew) {
  Place(1);
  TokenOf(first_, 0);
  Lose(first_);
  const RouterHello hello = Break();
  ASSERT_EQ(hello.requests.size(), 1u);
  EXPECT_EQ(hello.requests[0].id, first_.Attempt(1));
  const auto submit = Submitted(Welcome({first_.Attempt(1)}, {4, {2}}));
  ASSERT_TRUE(submit.has_value());
  EXPECT_EQ(submit->spec->id, first_.Attempt(1));
}

TEST_F(RouterResumeTest, WhatMakesALaterAttemptImpossibleIsALossToo) {
  Place(1);
  TokenOf(first_, 0);
  Lose(first_);
  const RequestId second = first_.Attempt(1);
  const auto effects =
      Do(PlanUpdateReceived{second, Failed{absl::InvalidArgumentError("fits no instance")}});
  EXPECT_TRUE(Of<End>(effects).empty());
  EXPECT_EQ(AwaitSubmit()->spec->id, first_.Attempt(2));
  PlaceAttempt(first_.Attempt(2));
  const absl::Status unknown = absl::NotFoundError("no transfer of the request is open here");
  const auto lost =
      Do(FinishedReceived{first_.Attempt(2), {5}, FinishReason::kError, unknown, 0, -1, ""});
  EXPECT_TRUE(Of<End>(lost).empty()) << "another process is at that address";
}

TEST_F(RouterResumeTest, ANextAttemptBeginsSoonIfNoPlanComes) {
  Place(1);
  EXPECT_FALSE(Submitted(Lose(first_)).has_value()) << "its orchestrator may plan it anew";
  EXPECT_EQ(AwaitSubmit()->spec->id, first_.Attempt(1));
  EXPECT_LE(now_, kSecondUs / 2);
}

// Its orchestrator reaches the instance, so it would wait for a new plan in vain. Nothing ran
// there: however often, it is no sign that the request ends processes.
TEST_F(RouterResumeTest, WhatTheRouterDoesNotReachIsTriedElsewhereAtOnce) {
  const auto unreached = [this](RequestId id) {
    return Do(TokenStreamLost{id, {5}, absl::UnavailableError("not reached"), /*unreached=*/true});
  };
  Place(1);
  const auto effects = unreached(first_);
  EXPECT_EQ(Submitted(effects)->spec->id, first_.Attempt(1));
  EXPECT_EQ(Of<SendRouterEnd>(effects).at(0).end.how, RouterEnd::How::kResumed);
  for (uint64_t attempt = 1; attempt < 2 * AttemptLosses::kShortMax; ++attempt) {
    PlaceAttempt(first_.Attempt(attempt));
    EXPECT_TRUE(Of<End>(unreached(first_.Attempt(attempt))).empty()) << attempt;
    ASSERT_TRUE(AwaitSubmit().has_value());
  }
  EXPECT_EQ(core_.Snapshot().unreached, static_cast<uint64_t>(2 * AttemptLosses::kShortMax));
}

TEST_F(RouterResumeTest, APlanForAnInstanceThatIsNotReachedIsNotWaitedFor) {
  Do(Arrived{Spec(1)});
  const auto opened = Of<OpenTokens>(Do(PlanUpdateReceived{
      first_, Planned{.epoch = {5}, .prefill = {1}, .decode = {2}, .decode_endpoint = "d:1"}}));
  ASSERT_EQ(opened.size(), 1u);
  ASSERT_TRUE(opened[0].ahead);
  const auto effects =
      Do(TokenStreamLost{first_, {5}, absl::UnavailableError("not reached"), /*unreached=*/true});
  EXPECT_EQ(Submitted(effects)->spec->id, first_.Attempt(1));
}

TEST_F(RouterResumeTest, AStreamWhoseInstanceDrainsMovesAtOnceAndItsClientSeesOneAnswer) {
  Place(1);
  TokenOf(first_, 0, 10);
  TokenOf(first_, 1, 11);
  const auto effects = Do(StreamLeaving{first_, {5}});
  ASSERT_EQ(Of<CloseTokens>(effects).size(), 1u);
  EXPECT_EQ(Of<CloseTokens>(effects)[0].id, first_);
  const auto submit = Submitted(effects);
  ASSERT_TRUE(submit.has_value());
  EXPECT_EQ(submit->spec->id, first_.Attempt(1));
  EXPECT_EQ(*submit->spec->encoded, "10,11");
  const RouterEnd told = Of<SendRouterEnd>(effects).at(0).end;
  EXPECT_EQ(told.how, RouterEnd::How::kResumed);
  EXPECT_EQ(told.why, "its decode instance drains; it goes on as request 7/1.1");
  EXPECT_TRUE(TokenOf(first_, 2).empty()) << "what was still sent there";
  PlaceAttempt(first_.Attempt(1));
  EXPECT_EQ(Of<DeliverToken>(TokenOf(first_.Attempt(1), 0, 12)).at(0).index, 2);
  EXPECT_EQ(core_.Snapshot().moves, 1u);
  EXPECT_EQ(core_.Snapshot().resumes, 1u);
}

// As in a rolling restart, in which each instance drains soon after requests have moved to it.
TEST_F(RouterResumeTest, MovesAreNoLossesOfTheRequestHoweverManyFollowEachOther) {
  Place(1);
  TokenOf(first_, 0);
  constexpr uint64_t kMoves = 2 * AttemptLosses::kPlacedMax;
  for (uint64_t move = 0; move < kMoves; ++move) {
    const RequestId id = first_.Attempt(move);
    if (move > 0) PlaceAttempt(id);
    const auto submit = Submitted(Do(StreamLeaving{id, {5}}));
    ASSERT_TRUE(submit.has_value()) << move;
    EXPECT_EQ(submit->spec->id, first_.Attempt(move + 1));
  }
  PlaceAttempt(first_.Attempt(kMoves));
  TokenOf(first_.Attempt(kMoves), 0);
  EXPECT_TRUE(Submitted(Lose(first_.Attempt(kMoves))).has_value());
}

// It goes on where it is, and may be asked for again.
TEST_F(RouterResumeTest, AStreamThatCouldNotGoOnElsewhereStays) {
  Place(1);
  EXPECT_TRUE(Do(StreamLeaving{first_, {5}}).empty()) << "no token has come";
  TokenOf(first_, 0);
  EXPECT_TRUE(Do(StreamLeaving{first_, {4}}).empty()) << "of another epoch";
  Do(LinkBroken{absl::UnavailableError("connection lost")});
  EXPECT_TRUE(Do(StreamLeaving{first_, {5}}).empty()) << "no orchestrator would plan it";
  EXPECT_EQ(Of<DeliverToken>(TokenOf(first_, 1)).size(), 1u);
  Reopen();
  Welcome();
  TokenOf(first_, 2);
  EXPECT_TRUE(Submitted(Do(StreamLeaving{first_, {5}})).has_value());
}

TEST_F(RouterResumeTest, AnAnswerThatLacksOnlyItsEndStays) {
  Place(1);
  for (int64_t index = 0; index < 4; ++index) TokenOf(first_, index);
  EXPECT_TRUE(Do(StreamLeaving{first_, {5}}).empty());
  const auto ended = Do(FinishedReceived{first_, {5}, FinishReason::kLength, {}, 4, -1, ""});
  EXPECT_TRUE(Of<End>(ended).at(0).status.ok());
}

TEST(AttemptLosses, AMoveIsNoLossAndTheWaitForAPlaceBeginsAnew) {
  AttemptLosses losses;
  EXPECT_TRUE(losses.Lose(0, 30 * kSecondUs, 1));
  EXPECT_TRUE(losses.Lose(1, 30 * kSecondUs, 2));
  losses.Move(3);
  EXPECT_EQ(losses.begins_us(), 3);
  EXPECT_EQ(losses.count(), 3u);
  EXPECT_TRUE(losses.Lose(kNever, 30 * kSecondUs, 4)) << "it ran nowhere";
  EXPECT_EQ(losses.begins_us(), 4 + AttemptLosses::kFirstWaitUs);
  EXPECT_FALSE(losses.Lose(4, 30 * kSecondUs, 5)) << "the third loss in a row";
}

TEST_F(RouterResumeTest, AnEngineThatFailedIsKnownAtOnce) {
  Do(Arrived{Spec(1)});
  Do(PlanUpdateReceived{first_, Planned{{5}, {1}}});
  Do(PlanUpdateReceived{first_, Placed{{5}, {2}, "d:1", {61}}});
  TokenOf(first_, 0);
  const absl::Status failed = absl::UnavailableError("the engine failed");
  const auto effects = Do(FinishedReceived{
      first_, {5}, FinishReason::kError, failed, 1, -1, "", {}, /*engine_failed=*/true});
  EXPECT_EQ(Submitted(effects)->failed_engines, FailedEngines{{61}});
}

// The orchestrator takes each request, and ends each plan at once.
TEST_F(RouterResumeTest, ACellThatLosesEachAttemptIsAskedByTheBudgetOnly) {
  constexpr int kRequests = 40;
  RouterCore core({.max_streams = kRequests,
                   .max_queued = 1,
                   .head_of_attempt = HeadOf,
                   .resume_wait_us = 600 * kSecondUs});
  TimeUs now = 0;
  std::map<RequestId, int> attempts;  // by first attempt
  const auto handle = [&](const RouterEvent& event) {
    std::vector<RouterEvent> answers;
    for (const RouterEffect& effect : core.Handle(event, now)) {
      EXPECT_FALSE(std::holds_alternative<End>(effect));
      if (std::holds_alternative<SendRouterReport>(effect))
        answers.emplace_back(RouterReportTaken{});
      const auto* submit = std::get_if<SendSubmit>(&effect);
      if (submit == nullptr) continue;
      ++attempts[submit->spec->id.First()];
      answers.emplace_back(PlanUpdateReceived{submit->spec->id, Accepted{}});
      answers.emplace_back(PlanUpdateReceived{submit->spec->id, PlanEnded{}});
    }
    EXPECT_TRUE(core.CheckInvariants().ok()) << core.CheckInvariants();
    return answers;
  };
  std::deque<RouterEvent> events = {Join{{.router = 7, .endpoint = "r:1"}},
                                    Welcomed{{.generation = kGeneration, .lease_us = kSecondUs}}};
  for (uint64_t serial = 1; serial <= kRequests; ++serial)
    events.emplace_back(Arrived{Spec(serial)});
  constexpr TimeUs kEnd = 60 * kSecondUs;
  while (now < kEnd) {
    while (!events.empty()) {
      for (RouterEvent& answer : handle(events.front())) events.push_back(std::move(answer));
      events.pop_front();
    }
    const TimeUs next = core.NextDeadline();
    ASSERT_GT(next, now) << "nothing is due that was not done";
    now = next;
    events.emplace_back(RouterTick{});
  }
  int all = 0;
  for (const auto& [id, count] : attempts) {
    EXPECT_GT(count, 12) << "each has its turn";
    all += count;
  }
  // The first one and a free one of each, those that the budget begins with, its share of the
  // requests and its floor. Without it there would be one a second for each.
  EXPECT_LE(all,
            2 * kRequests + kRequests + kRequests / 5 + RetryBudget::kFloorPerS * kEnd / kSecondUs);
  EXPECT_GT(core.Snapshot().retries_delayed, 0u);
}

TEST_F(RouterResumeTest, TheNextAttemptKnowsWhichEnginesFailed) {
  Place(1);
  TokenOf(first_, 0);
  const Failed failed{absl::UnavailableError("the engine failed"), {{51}}};
  EXPECT_EQ(Submitted(Do(PlanUpdateReceived{first_, failed}))->failed_engines, FailedEngines{{51}});
}

}  // namespace
}  // namespace skein::scheduler
