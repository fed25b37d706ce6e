#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "scheduler/router/testing/router_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::kGeneration;
using testing::RouterCoreTest;
using testing::Spec;

TEST_F(RouterCoreTest, AStreamRunsFromArrivalToItsEnd) {
  Place(1);
  EXPECT_EQ(Of<DeliverToken>(Token(1, 0)).size(), 1u);
  EXPECT_EQ(Of<DeliverToken>(Token(1, 1)).size(), 1u);
  const auto effects = Do(FinishedReceived{{7, 1}, {5}, FinishReason::kStop, {}, 3, 99, ""});
  ASSERT_EQ(effects.size(), 2u);  // the token stream has ended by itself
  ASSERT_EQ(Of<SendRouterEnd>(effects).size(), 1u);
  EXPECT_EQ(Of<SendRouterEnd>(effects)[0].end.how, RouterEnd::How::kStopToken);
  const End end = Of<End>(effects)[0];
  EXPECT_EQ(end.reason, FinishReason::kStop);
  EXPECT_EQ(end.output_tokens, 3);
  EXPECT_EQ(end.stop_token, 99);
  EXPECT_EQ(end.prompt_tokens, 3);
  EXPECT_EQ(core_.Snapshot().finished, 1u);
}

// What metrics and probes read is kept, not made by a walk over the requests.
TEST_F(RouterCoreTest, TheSnapshotFollowsEachRequestAndTokensLeaveItAlone) {
  const auto counts = [this] {
    const RouterSnapshot& s = core_.Snapshot();
    return std::vector<int64_t>{s.queued, s.submitted, s.streaming};
  };
  using Counts = std::vector<int64_t>;
  Do(Arrived{Spec(1)});
  EXPECT_EQ(counts(), (Counts{0, 1, 0}));
  EXPECT_EQ(core_.Snapshot().oldest_arrival_us, kNever);
  Do(PlanUpdateReceived{{7, 1}, Planned{{5}, {1}}});
  Do(PlanUpdateReceived{{7, 1}, Placed{{5}, {2}, "d:1"}});
  Do(Arrived{Spec(2)});
  now_ = 10;
  Do(Arrived{Spec(3)});
  EXPECT_EQ(counts(), (Counts{1, 1, 1}));
  EXPECT_EQ(core_.Snapshot().models.at("m").streaming, 1);
  EXPECT_EQ(core_.Snapshot().oldest_arrival_us, 10);
  const uint64_t version = core_.snapshot_version();
  Token(1, 0);
  EXPECT_EQ(core_.snapshot_version(), version);
  Do(ClientGone{{7, 1}});
  EXPECT_EQ(counts(), (Counts{0, 2, 0}));
  EXPECT_EQ(core_.Snapshot().cancelled, 1u);
  EXPECT_NE(core_.snapshot_version(), version);
}

// Prompts are computed when a decode instance has room: a plan alone is no work.
TEST_F(RouterCoreTest, AnEndTellsWhetherWorkWasThrownAway) {
  Do(Arrived{Spec(1)});
  Do(PlanUpdateReceived{{7, 1}, Planned{{5}, {1}}});
  auto ends = Of<End>(Do(PlanUpdateReceived{{7, 1}, Failed{absl::UnavailableError("none")}}));
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_FALSE(ends[0].begun);
  Place(2);
  ends = Of<End>(Do(PlanUpdateReceived{{7, 2}, Failed{absl::UnavailableError("lost")}}));
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_TRUE(ends[0].begun);
}

TEST_F(RouterCoreTest, AnEndTellsWhereTheTimeWent) {
  Do(Arrived{Spec(1)});
  Do(Arrived{Spec(2)});
  Do(Arrived{Spec(3)});  // queued
  now_ = 40;
  Do(ClientGone{{7, 1}});
  Do(PlanUpdateReceived{{7, 3}, Planned{{5}, {1}, 7}});
  Do(PlanUpdateReceived{{7, 3}, Planned{{6}, {1}, 9}});  // planned anew
  Do(PlanUpdateReceived{{7, 3}, Planned{{5}, {1}, 8}});  // late: older than what is known
  Do(PlanUpdateReceived{{7, 3}, Placed{{6}, {2}, "d:1"}});
  Do(TokenReceived{{7, 3}, {6}, 0, 42, "", "", PrefillTimes{1, 2, 3}});
  Do(TokenReceived{{7, 3}, {6}, 1, 42, "", "", std::nullopt});
  const End end = Of<End>(Do(StopMatched{{7, 3}}))[0];  // no word of the decode instance's
  EXPECT_EQ(end.times.admission_us, 40);
  EXPECT_EQ(end.times.plan_us, 9);
  ASSERT_TRUE(end.times.prefill.has_value());
  EXPECT_EQ(*end.times.prefill, (PrefillTimes{1, 2, 3}));
}

TEST_F(RouterCoreTest, ARequestThatWasNotPlacedHasNoPrefillTimes) {
  Do(Arrived{Spec(1)});
  const End end = Of<End>(Do(ClientGone{{7, 1}}))[0];
  EXPECT_FALSE(end.times.prefill.has_value());
}

TEST_F(RouterCoreTest, Invariant1AdmissionIsBounded) {
  Do(Arrived{Spec(1)});
  Do(Arrived{Spec(2)});
  EXPECT_TRUE(Do(Arrived{Spec(3)}).empty());  // queued
  const auto rejected = Of<Reject>(Do(Arrived{Spec(4)}));
  ASSERT_EQ(rejected.size(), 1u);
  EXPECT_EQ(rejected[0].status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_GE(rejected[0].retry_after_us, kSecondUs);
  const auto effects = Do(ClientGone{{7, 1}});  // makes room for the queued one
  EXPECT_EQ(Of<SendSubmit>(effects)[0].spec->id, (RequestId{7, 3}));
}

TEST_F(RouterCoreTest, RetryAfterFollowsTheFinishingRate) {
  for (uint64_t serial = 1; serial <= 20; ++serial) {
    now_ += 10 * kSecondUs;
    Do(Arrived{Spec(serial)});
    Do(ClientGone{{7, serial}});
  }
  Do(Arrived{Spec(101)});
  Do(Arrived{Spec(102)});
  Do(Arrived{Spec(103)});
  const TimeUs retry = Of<Reject>(Do(Arrived{Spec(104)}))[0].retry_after_us;
  EXPECT_GE(retry, 15 * kSecondUs);
  EXPECT_LE(retry, 25 * kSecondUs);
}

TEST_F(RouterCoreTest, Invariant2AGapOrARepetitionEndsTheRequest) {
  Place(1);
  Token(1, 0);
  auto effects = Token(1, 2);
  EXPECT_TRUE(Of<DeliverToken>(effects).empty());
  EXPECT_EQ(Of<End>(effects)[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Of<CloseTokens>(effects).size(), 1u);
  Place(2);
  Token(2, 0);
  EXPECT_EQ(Of<End>(Token(2, 0)).size(), 1u);
  Place(3);
  Token(3, 0);
  effects = Do(FinishedReceived{{7, 3}, {5}, FinishReason::kLength, {}, 2, -1, ""});
  EXPECT_EQ(Of<End>(effects)[0].status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(core_.Snapshot().index_errors, 3u);
}

TEST_F(RouterCoreTest, Invariant3ARequestEndsOnceWhateverFollows) {
  Place(1);
  EXPECT_EQ(Of<End>(Do(ClientGone{{7, 1}})).size(), 1u);
  EXPECT_TRUE(Token(1, 0).empty());
  EXPECT_TRUE(Do(ClientGone{{7, 1}}).empty());
  EXPECT_TRUE(Do(StopMatched{{7, 1}}).empty());
  EXPECT_TRUE(Do(FinishedReceived{{7, 1}, {5}, FinishReason::kCancelled, {}, 0, -1, ""}).empty());
  EXPECT_TRUE(Do(TokenStreamLost{{7, 1}, {5}, absl::UnavailableError("x")}).empty());
  EXPECT_TRUE(Do(PlanUpdateReceived{{7, 1}, Failed{absl::UnavailableError("x")}}).empty());
  EXPECT_TRUE(Do(PlanUpdateReceived{{7, 1}, PlanEnded{}}).empty());
}

TEST_F(RouterCoreTest, AFullInboxAtTheDecodeInstanceIsNoRefusalOfWhatWasAccepted) {
  Place(1);
  EXPECT_TRUE(Do(TokenStreamLost{{7, 1}, {5}, absl::ResourceExhaustedError("full")}).empty());
  const auto effects = Do(PlanUpdateReceived{{7, 1}, PlanEnded{}});
  EXPECT_TRUE(absl::IsUnavailable(Of<End>(effects)[0].status));
}

TEST_F(RouterCoreTest, ClientGoneClosesTheTokenStreamAndTellsTheOrchestrator) {
  Place(1);
  const auto effects = Do(ClientGone{{7, 1}});
  EXPECT_EQ(Of<CloseTokens>(effects).size(), 1u);
  ASSERT_EQ(Of<SendRouterEnd>(effects).size(), 1u);
  EXPECT_EQ(Of<SendRouterEnd>(effects)[0].end.how, RouterEnd::How::kClientGone);
}

TEST_F(RouterCoreTest, AStopStringFinishesTheRequest) {
  Place(1);
  Token(1, 0);
  const auto effects = Do(StopMatched{{7, 1}});
  EXPECT_EQ(Of<End>(effects)[0].reason, FinishReason::kStop);
  EXPECT_TRUE(Of<End>(effects)[0].status.ok());
  EXPECT_EQ(Of<CloseTokens>(effects).size(), 1u);
}

TEST_F(RouterCoreTest, APlacedStreamOutlivesTheOrchestrator) {
  Place(1);
  const RouterHello hello = Break();
  ASSERT_EQ(hello.requests.size(), 1u);
  EXPECT_EQ(hello.requests[0].epoch, Epoch{5});
  EXPECT_TRUE(hello.requests[0].placed && hello.requests[0].streams);
  EXPECT_EQ(hello.requests[0].decode, InstanceId{2});
  EXPECT_TRUE(Welcome({{7, 1}}, {4, {2}}).empty()) << "it streams: it is not submitted anew";
  EXPECT_EQ(Of<DeliverToken>(Token(1, 0)).size(), 1u);
  EXPECT_EQ(Of<End>(Do(TokenStreamLost{{7, 1}, {5}, absl::UnavailableError("x")})).size(), 1u);
}

TEST_F(RouterCoreTest, AStreamThatNoOrchestratorKnowsIsSubmittedAnewIfItFailsBeforeAToken) {
  Place(1);
  Break();
  Welcome({{7, 1}}, {4, {2}});
  const auto effects = Do(TokenStreamLost{{7, 1}, {5}, absl::UnavailableError("lost")});
  ASSERT_EQ(Of<SendSubmit>(effects).size(), 1u);
  EXPECT_TRUE(Of<SendSubmit>(effects)[0].accepted) << "it must not be refused now";
  EXPECT_TRUE(Of<End>(effects).empty());
  Do(PlanUpdateReceived{{7, 1}, Planned{{9}, {1}}});
  EXPECT_EQ(Of<OpenTokens>(Do(PlanUpdateReceived{{7, 1}, Placed{{9}, {3}, "d:2"}})).size(), 1u);
}

TEST_F(RouterCoreTest, ANewOrchestratorIsToldOfWhatWaitsForAPlan) {
  Do(Arrived{Spec(1)});
  EXPECT_EQ(Break().requests.size(), 1u);
  EXPECT_EQ(Of<SendSubmit>(Welcome({{7, 1}})).at(0).spec->id, (RequestId{7, 1}));
  EXPECT_EQ(Break().requests.size(), 1u);
  EXPECT_TRUE(Welcome().empty()) << "it is known";
}

TEST_F(RouterCoreTest, WithoutAStreamNewRequestsWaitForIt) {
  Do(LinkBroken{absl::UnavailableError("connection lost")});
  EXPECT_TRUE(Of<SendSubmit>(Do(Arrived{Spec(1)})).empty());
  EXPECT_TRUE(Reopen().requests.empty());  // no orchestrator has heard of it
  EXPECT_EQ(Of<SendSubmit>(Welcome()).size(), 1u);
}

TEST_F(RouterCoreTest, TheWaitForAStreamIsBounded) {
  Do(Arrived{Spec(1)});
  Place(2);
  Do(LinkBroken{absl::UnavailableError("connection lost")});
  EXPECT_TRUE(Do(TokenStreamLost{{7, 2}, {5}, absl::AbortedError("lost")}).empty());
  std::vector<End> ends;
  for (now_ += kSecondUs; ends.size() < 2; now_ += kSecondUs) {
    ASSERT_LE(now_, 40 * kSecondUs);
    const auto effects = Do(RouterTick{});
    for (const End& end : Of<End>(effects)) ends.push_back(end);
    if (!Of<OpenLink>(effects).empty()) Do(LinkBroken{absl::UnavailableError("refused")});
  }
  EXPECT_GE(now_, 30 * kSecondUs);
  for (const End& end : ends) {
    const bool waited = end.id == RequestId{7, 1};
    EXPECT_EQ(end.status.code(),
              waited ? absl::StatusCode::kUnavailable : absl::StatusCode::kAborted);
  }
}

TEST_F(RouterCoreTest, AFormerOrchestratorIsRefusedAndToldOfTheLatter) {
  Do(Arrived{Spec(1)});
  Break();
  const auto refused = Welcome({}, {2, {9}});
  EXPECT_EQ(Of<CloseLink>(refused).size(), 1u);
  EXPECT_FALSE(core_.Snapshot().ready[0]);
  EXPECT_EQ(Reopen().seen, kGeneration);
  EXPECT_EQ(Of<CloseLink>(Welcome({}, {3, {9}})).size(), 1u) << "another one of that number";
  Reopen();
  EXPECT_EQ(Of<SendSubmit>(Welcome({{7, 1}}, {4, {9}})).size(), 1u);
  EXPECT_TRUE(core_.Snapshot().ready[0]);
}

TEST_F(RouterCoreTest, HowARequestEndedIsRepeatedUntilItWasHeard) {
  Do(Arrived{Spec(1)});
  Do(ClientGone{{7, 1}});
  EXPECT_EQ(Break().ended.size(), 1u);
  Do(LinkBroken{absl::UnavailableError("again")});
  EXPECT_EQ(Reopen().ended.size(), 1u);
  Do(Arrived{Spec(2)});
  EXPECT_TRUE(Of<SendRouterEnd>(Do(ClientGone{{7, 2}})).empty()) << "it was never submitted";
  Welcome();
  now_ += kSecondUs;
  EXPECT_EQ(Of<SendRouterReport>(Do(RouterTick{})).size(), 1u);
  Do(RouterReportTaken{});
  EXPECT_TRUE(Break().ended.empty());
}

TEST_F(RouterCoreTest, AnOrchestratorThatDoesNotAnswerIsLeft) {
  now_ += kSecondUs;
  EXPECT_EQ(Of<SendRouterReport>(Do(RouterTick{})).size(), 1u);
  now_ = core_.NextDeadline();
  EXPECT_EQ(Of<CloseLink>(Do(RouterTick{})).size(), 1u);
  Reopen();
}

TEST_F(RouterCoreTest, ARouterSaysGoodbyeOrLeavesWithoutAStream) {
  EXPECT_EQ(Of<SendRouterGoodbye>(Do(Leave{})).size(), 1u);
  EXPECT_EQ(Of<RouterHasLeft>(Do(RouterGoodbyeTaken{})).size(), 1u);
  EXPECT_TRUE(Do(LinkBroken{absl::OkStatus()}).empty());
  EXPECT_EQ(core_.NextDeadline(), kNever);
}

TEST_F(RouterCoreTest, FailedCarriesItsStatusToTheClient) {
  Do(Arrived{Spec(1)});
  const auto effects = Do(PlanUpdateReceived{{7, 1}, Failed{absl::NotFoundError("no model")}});
  EXPECT_EQ(Of<End>(effects)[0].status, absl::NotFoundError("no model"));
}

TEST_F(RouterCoreTest, ADeadlineEndsAQueuedAndARunningRequest) {
  Do(Arrived{Spec(1, 100)});
  Do(Arrived{Spec(2, 300)});
  Do(Arrived{Spec(3, 200)});  // queued
  EXPECT_EQ(core_.NextDeadline(), 100);
  now_ = 250;
  const auto effects = Do(RouterTick{});
  ASSERT_EQ(Of<End>(effects).size(), 2u);
  for (const End& end : Of<End>(effects)) {
    EXPECT_EQ(end.status.code(), absl::StatusCode::kDeadlineExceeded);
  }
  EXPECT_EQ(core_.NextDeadline(), 300);
}

TEST_F(RouterCoreTest, ARequestOfWhichTheClientHasNothingIsPlannedAnew) {
  Place(1);
  const auto moved = Do(PlanUpdateReceived{{7, 1}, Planned{{9}, {1}}});
  EXPECT_EQ(Of<CloseTokens>(moved)[0].epoch, Epoch{5});
  EXPECT_TRUE(Do(TokenStreamLost{{7, 1}, {5}, absl::UnavailableError("late")}).empty());
  const auto placed = Do(PlanUpdateReceived{{7, 1}, Placed{{9}, {3}, "d:2"}});
  EXPECT_EQ(Of<OpenTokens>(placed)[0].endpoint, "d:2");
  EXPECT_EQ(Of<DeliverToken>(Do(TokenReceived{{7, 1}, {9}, 0, 5, "", ""})).size(), 1u);
  // Not any more: it would hear its tokens twice.
  const auto too_late = Do(PlanUpdateReceived{{7, 1}, Planned{{12}, {1}}});
  EXPECT_EQ(Of<End>(too_late)[0].status.code(), absl::StatusCode::kUnavailable);
}

TEST_F(RouterCoreTest, AStreamThatFailsBeforeItsFirstTokenWaitsForTheOrchestrator) {
  Place(1);
  const absl::Status lost = absl::UnavailableError("a member was lost");
  EXPECT_TRUE(Do(FinishedReceived{{7, 1}, {5}, FinishReason::kError, lost, 0, -1, ""}).empty());
  EXPECT_TRUE(Do(PlanUpdateReceived{{7, 1}, Planned{{9}, {1}}}).empty());  // nothing to close
  EXPECT_EQ(Of<OpenTokens>(Do(PlanUpdateReceived{{7, 1}, Placed{{9}, {3}, "d:2"}})).size(), 1u);
  // It hears nothing, or that the orchestrator has done with it: then it is over.
  EXPECT_TRUE(Do(TokenStreamLost{{7, 1}, {9}, lost}).empty());
  EXPECT_EQ(Of<End>(Do(PlanUpdateReceived{{7, 1}, PlanEnded{}}))[0].status, lost);
  Place(2);
  EXPECT_TRUE(Do(TokenStreamLost{{7, 2}, {5}, lost}).empty());
  now_ += 5 * kSecondUs;
  EXPECT_EQ(Of<End>(Do(RouterTick{}))[0].status, lost);
}

TEST_F(RouterCoreTest, AnOlderEpochIsIgnored) {
  Do(Arrived{Spec(1)});
  Do(PlanUpdateReceived{{7, 1}, Planned{{9}, {1}}});
  EXPECT_TRUE(Do(PlanUpdateReceived{{7, 1}, Placed{{5}, {2}, "d:1"}}).empty());
  EXPECT_EQ(Do(PlanUpdateReceived{{7, 1}, Placed{{9}, {2}, "d:1"}}).size(), 1u);
  EXPECT_TRUE(Token(1, 0).empty());  // of epoch 5
}

// Two engines may have failed under two orchestrators.
TEST_F(RouterCoreTest, TheNextOrchestratorIsToldWhichEnginesFailedUnderARequest) {
  EXPECT_TRUE(std::get<SendSubmit>(Do(Arrived{Spec(1)}).at(0)).failed_engines.empty());
  Do(Arrived{Spec(2)});
  Do(PlanUpdateReceived{{7, 1}, Planned{{5}, {1}, 0, {{51}}}});
  Do(PlanUpdateReceived{{7, 2}, Accepted{{{51}}}});
  Do(PlanUpdateReceived{{7, 2}, Planned{{6}, {1}, 0, {}}});  // an earlier one cannot take it back
  Do(PlanUpdateReceived{{7, 2}, Planned{{6}, {1}, 0, {{51}, {52}}}});
  Break();
  std::map<uint64_t, FailedEngines> told;
  for (const RouterEffect& effect : Welcome({{7, 1}, {7, 2}}, {4, {2}})) {
    const auto* submit = std::get_if<SendSubmit>(&effect);
    if (submit != nullptr) told[submit->spec->id.serial] = submit->failed_engines;
  }
  EXPECT_EQ(told, (std::map<uint64_t, FailedEngines>{{1, {{51}}}, {2, {{51}, {52}}}}));
}

}  // namespace
}  // namespace skein::scheduler
