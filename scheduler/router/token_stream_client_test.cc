#include "scheduler/router/token_stream_client.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

constexpr RequestId kFirst{1, 1}, kSecond{1, 2};
constexpr Epoch kEpoch{5};
constexpr DecodePlace kPlace{0, {3}};

class TokenStreamClientTest : public ::testing::Test {
 protected:
  void Attach(RequestId id, const std::string& endpoint = "a", Epoch epoch = kEpoch,
              bool paused = false) {
    client_.Attach(id, epoch, {endpoint, kPlace}, "trace", paused, now_);
    Check();
  }
  // The stream to be opened now.
  TokenStreamId Opened(const std::string& endpoint = "a") {
    const auto opens = client_.TakeOpens();
    EXPECT_EQ(opens.size(), 1u);
    if (opens.size() != 1) return {};
    EXPECT_EQ(opens[0].endpoint, endpoint);
    return opens[0].stream;
  }
  bool NoneOpened() { return client_.TakeOpens().empty(); }
  TokenStreamRequest Sent(TokenStreamId stream) {
    if (!client_.HasNext(stream)) return {};
    TokenStreamRequest request = client_.Next(stream);
    Check();
    return request;
  }
  bool Receive(TokenStreamId stream, RequestId id, size_t tokens, bool finished = false,
               Epoch epoch = kEpoch) {
    SequenceTokens sequence{.id = id, .epoch = epoch, .tokens = std::vector<int32_t>(tokens)};
    if (finished) sequence.finished = FinishedTokens{};
    client_.Received(stream, now_);
    const bool taken = client_.Receive(stream, sequence).attached;
    Check();
    return taken;
  }
  size_t End(TokenStreamId stream) {
    const size_t lost = client_.Ended(stream, now_).size();
    Check();
    return lost;
  }
  void Check() {
    const absl::Status invariants = client_.CheckInvariants();
    ASSERT_TRUE(invariants.ok()) << invariants;
  }

  TimeUs now_ = 1000;
  TokenStreamClient client_{8};
};

TEST_F(TokenStreamClientTest, RequestsAtOneWorkerShareOneStream) {
  Attach(kFirst);
  const TokenStreamId stream = Opened();
  Attach(kSecond);
  EXPECT_TRUE(NoneOpened());
  EXPECT_EQ(client_.TakeReady(), (std::vector<TokenStreamId>{stream}));
  const TokenStreamRequest request = Sent(stream);
  ASSERT_EQ(request.attach.size(), 2u);
  EXPECT_EQ(request.attach[0].id, kFirst);
  EXPECT_EQ(request.attach[0].credit, 8);
  EXPECT_EQ(request.attach[0].traceparent, "trace");
  Attach({1, 3}, "b");
  EXPECT_NE(Opened("b"), stream);
}

TEST_F(TokenStreamClientTest, CreditIsGrantedInHalvesAsTokensCome) {
  Attach(kFirst);
  const TokenStreamId stream = Opened();
  Sent(stream);
  EXPECT_TRUE(Receive(stream, kFirst, 3));
  EXPECT_TRUE(Sent(stream).empty());
  EXPECT_TRUE(Receive(stream, kFirst, 2));
  const TokenStreamRequest request = Sent(stream);
  ASSERT_EQ(request.credit.size(), 1u);
  EXPECT_EQ(request.credit[0].more, 5);
}

TEST_F(TokenStreamClientTest, APausedRequestGetsNoCreditAndTheOthersDo) {
  Attach(kFirst);
  Attach(kSecond);
  const TokenStreamId stream = Opened();
  Sent(stream);
  client_.SetPaused(kFirst, true);
  EXPECT_TRUE(Receive(stream, kFirst, 8));
  EXPECT_TRUE(Receive(stream, kSecond, 8));
  TokenStreamRequest request = Sent(stream);
  ASSERT_EQ(request.credit.size(), 1u);
  EXPECT_EQ(request.credit[0].id, kSecond);
  client_.SetPaused(kFirst, false);
  request = Sent(stream);
  ASSERT_EQ(request.credit.size(), 1u);
  EXPECT_EQ(request.credit[0].id, kFirst);
  EXPECT_EQ(request.credit[0].more, 8);
}

TEST_F(TokenStreamClientTest, ARequestThatIsPausedBeforeItsAttachStartsWithoutCredit) {
  Attach(kFirst, "a", kEpoch, /*paused=*/true);
  const TokenStreamId stream = Opened();
  EXPECT_EQ(Sent(stream).attach.at(0).credit, 0);
  client_.SetPaused(kFirst, false);
  EXPECT_EQ(Sent(stream).credit.at(0).more, 8);
}

TEST_F(TokenStreamClientTest, WhatIsDetachedOrEndedIsNotReceived) {
  Attach(kFirst);
  Attach(kSecond);
  const TokenStreamId stream = Opened();
  Sent(stream);
  client_.Detach(kFirst, {4});  // an older epoch
  EXPECT_TRUE(Sent(stream).empty());
  client_.Detach(kFirst, kEpoch);
  EXPECT_EQ(Sent(stream).detach.at(0).id, kFirst);
  EXPECT_FALSE(Receive(stream, kFirst, 1));
  EXPECT_TRUE(Receive(stream, kSecond, 1, /*finished=*/true));
  EXPECT_FALSE(Receive(stream, kSecond, 1));
  client_.Detach(kSecond, kEpoch);
  EXPECT_TRUE(Sent(stream).empty()) << "the worker knows its end";
  EXPECT_EQ(client_.attached(), 0u);
  EXPECT_FALSE(Receive({99}, kFirst, 1));
}

TEST_F(TokenStreamClientTest, ANewerEpochDetachesTheOlder) {
  Attach(kFirst);
  const TokenStreamId old = Opened();
  Sent(old);
  Attach(kFirst, "b", {6});
  const TokenStreamId stream = Opened("b");
  EXPECT_EQ(Sent(old).detach.at(0).epoch, kEpoch);
  EXPECT_FALSE(Receive(old, kFirst, 1));
  EXPECT_FALSE(Receive(old, kFirst, 1, false, {6})) << "it is attached elsewhere";
  EXPECT_TRUE(Receive(stream, kFirst, 1, false, {6}));
}

TEST_F(TokenStreamClientTest, ABreakTakesAllRequestsOfTheStreamAndTheNextOneIsOpenedAtOnce) {
  Attach(kFirst);
  Attach(kSecond);
  Attach({1, 3}, "b");
  const auto opens = client_.TakeOpens();
  ASSERT_EQ(opens.size(), 2u);
  EXPECT_TRUE(Receive(opens[0].stream, kFirst, 1));
  EXPECT_EQ(End(opens[0].stream), 2u);
  EXPECT_EQ(End(opens[0].stream), 0u);
  EXPECT_EQ(client_.attached(), 1u);
  EXPECT_TRUE(NoneOpened()) << "nobody needs one";
  EXPECT_FALSE(Receive(opens[0].stream, kFirst, 1));
  Attach(kFirst, "a", {6});
  EXPECT_NE(Opened(), opens[0].stream);
}

TEST_F(TokenStreamClientTest, StreamsOnWhichNothingComesAreOpenedMoreAndMoreSeldom) {
  TimeUs backoff_us = TokenStreamClient::kBackoffMinUs;
  Attach(kFirst);
  for (uint64_t epoch = 6; epoch < 16; ++epoch) {
    EXPECT_EQ(End(Opened()), 1u);
    Attach(kFirst, "a", {epoch});
    EXPECT_TRUE(NoneOpened());
    EXPECT_EQ(client_.NextDeadline(), now_ + backoff_us);
    now_ += backoff_us - 1;
    client_.Tick(now_);
    EXPECT_TRUE(NoneOpened());
    ++now_;
    client_.Tick(now_);
    Check();
    EXPECT_EQ(client_.NextDeadline(), kNever);
    backoff_us = std::min(2 * backoff_us, TokenStreamClient::kBackoffMaxUs);
  }
  const TokenStreamId stream = Opened();
  EXPECT_EQ(Sent(stream).attach.size(), 1u) << "the lost ones are not attached again";
  Receive(stream, kFirst, 1, false, {15});
  EXPECT_EQ(End(stream), 1u);
  Attach(kFirst, "a", {20});
  Opened();  // at once
}

TEST_F(TokenStreamClientTest, ADetachWhileItWaitsForAStreamLeavesNothing) {
  Attach(kFirst);
  End(Opened());
  Attach(kFirst, "a", {6});
  Attach(kSecond);
  client_.Detach(kFirst, {6});
  Check();
  EXPECT_NE(client_.NextDeadline(), kNever);
  client_.Detach(kSecond, kEpoch);
  Check();
  EXPECT_EQ(client_.NextDeadline(), kNever);
  Attach(kSecond, "a", {7});
  now_ += kSecondUs;
  client_.Tick(now_);
  const TokenStreamRequest request = Sent(Opened());
  ASSERT_EQ(request.attach.size(), 1u);
  EXPECT_EQ(request.attach[0].epoch, (Epoch{7}));
  EXPECT_TRUE(request.detach.empty());
}

// The orchestrators are told of instances with requests here whose messages came of late, empty
// ones included.
TEST_F(TokenStreamClientTest, AnInstanceIsHeardWhileMessagesComeOfItsRequests) {
  using Ids = std::vector<Incarnation>;
  Attach(kFirst);
  Attach(kSecond);
  const TokenStreamId stream = Opened();
  EXPECT_EQ(client_.heard().TellAll(0).not_heard, (Ids{{3}}));
  client_.Received(stream, now_);
  Check();
  EXPECT_EQ(client_.heard().TellChanges(0).heard, (Ids{{3}}));
  EXPECT_TRUE(client_.heard().TellChanges(1).heard.empty()) << "it is another orchestrator's";
  Receive(stream, kFirst, 1, /*finished=*/true);
  EXPECT_TRUE(client_.heard().TellChanges(0).not_heard.empty()) << "the other request is there";
  client_.Detach(kSecond, kEpoch);
  Check();
  EXPECT_EQ(client_.heard().TellChanges(0).not_heard, (Ids{{3}}));
  Attach(kSecond, "a", {6});
  client_.Received(stream, now_);
  EXPECT_EQ(client_.heard().TellChanges(0).heard, (Ids{{3}}));
  EXPECT_EQ(End(stream), 1u);
  EXPECT_EQ(client_.heard().TellChanges(0).not_heard, (Ids{{3}})) << "its stream broke";
}

TEST_F(TokenStreamClientTest, ASilentInstanceIsHeardNoMore) {
  Attach(kFirst);
  const TokenStreamId stream = Opened();
  client_.Received(stream, now_);
  ASSERT_EQ(client_.heard().TellChanges(0).heard.size(), 1u);
  const TimeUs silent_since_us = now_;
  for (;;) {
    now_ = client_.NextDeadline();
    ASSERT_NE(now_, kNever);
    client_.Tick(now_);
    Check();
    if (!client_.heard().TellChanges(0).not_heard.empty()) break;
  }
  const TimeUs silence_us = HeardInstances::SilenceOf(HeardInstances::kLeaseUs);
  EXPECT_GE(now_, silent_since_us + silence_us);
  EXPECT_LE(now_, silent_since_us + silence_us * 5 / 4);
  EXPECT_EQ(client_.NextDeadline(), kNever);
  EXPECT_EQ(client_.attached(), 1u) << "silence alone ends no stream";
}

// ---- attaching again ----

class ReattachTest : public ::testing::Test {
 protected:
  static constexpr TimeUs kWaitUs = 100 * kMillisecondUs;

  void Attach(RequestId id, bool paused = false) {
    client_.Attach(id, kEpoch, {"a", kPlace, /*ahead=*/true}, "trace", paused, now_);
    Check();
  }
  TokenStreamId Opened() {
    const auto opens = client_.TakeOpens();
    EXPECT_EQ(opens.size(), 1u);
    return opens.empty() ? TokenStreamId{} : opens[0].stream;
  }
  TokenStreamRequest Sent(TokenStreamId stream) {
    TokenStreamRequest request = client_.Next(stream);
    Check();
    return request;
  }
  TokenStreamClient::Part Receive(TokenStreamId stream, RequestId id, size_t tokens,
                                  bool finished = false) {
    SequenceTokens sequence{.id = id, .epoch = kEpoch, .tokens = std::vector<int32_t>(tokens)};
    if (finished) sequence.finished = FinishedTokens{};
    client_.Received(stream, now_);
    const auto part = client_.Receive(stream, sequence);
    Check();
    return part;
  }
  std::vector<TokenStreamClient::Lost> End(TokenStreamId stream) {
    auto lost = client_.Ended(stream, now_);
    Check();
    return lost;
  }
  void Check() {
    const absl::Status invariants = client_.CheckInvariants();
    ASSERT_TRUE(invariants.ok()) << invariants;
  }

  TimeUs now_ = 1000;
  TokenStreamClient client_{8, kWaitUs};
};

TEST_F(ReattachTest, ABrokenStreamIsReplacedAtOnceAndAsksForTheRest) {
  Attach(kFirst);
  Attach(kSecond);
  const TokenStreamId stream = Opened();
  const TokenStreamRequest first = Sent(stream);
  EXPECT_EQ(first.attach.at(0).from_index, 0) << "the worker is to keep it after a break";
  EXPECT_EQ(first.attach[0].decode, kPlace.instance);
  EXPECT_TRUE(first.attach[0].ahead);
  EXPECT_EQ(Receive(stream, kFirst, 3).repeated, 0);
  EXPECT_TRUE(End(stream).empty());
  EXPECT_EQ(client_.attached(), 2u);

  const TokenStreamId next = Opened();
  EXPECT_EQ(client_.TakeReady(), (std::vector<TokenStreamId>{next}));
  const TokenStreamRequest again = Sent(next);
  ASSERT_EQ(again.attach.size(), 2u);
  EXPECT_TRUE(again.credit.empty());
  EXPECT_EQ(again.attach[0].from_index, 3);
  EXPECT_GT(again.attach[0].stream, first.attach[0].stream) << "which may come later";
  EXPECT_EQ(again.attach[0].credit, 8) << "nothing is in transit any more";
  EXPECT_FALSE(again.attach[0].ahead);
  EXPECT_EQ(again.attach[1].from_index, 0);
  EXPECT_FALSE(Receive(stream, kFirst, 1).attached) << "of the stream that broke";

  const auto part = Receive(next, kFirst, 3);
  EXPECT_TRUE(part.attached);
  EXPECT_EQ(part.repeated, 1) << "the last one that was received";
  EXPECT_EQ(Receive(next, kFirst, 2).repeated, 0);
  EXPECT_EQ(Sent(next).credit.at(0).received, 7);
  EXPECT_EQ(Receive(next, kSecond, 1).repeated, 0) << "nothing of it had come";
  now_ += kWaitUs;
  EXPECT_TRUE(client_.Tick(now_).empty()) << "the worker has answered";
}

TEST_F(ReattachTest, AStreamOnWhichNothingCameIsNotTriedAgain) {
  Attach(kFirst);
  const TokenStreamId stream = Opened();
  Sent(stream);
  Receive(stream, kFirst, 1);
  EXPECT_TRUE(End(stream).empty());
  EXPECT_EQ(End(Opened()).size(), 1u) << "the worker has gone";
  EXPECT_EQ(client_.attached(), 0u);
  EXPECT_TRUE(client_.TakeOpens().empty());
}

TEST_F(ReattachTest, AWorkerThatDoesNotAnswerInTimeHasLostTheRequests) {
  Attach(kFirst);
  const TokenStreamId stream = Opened();
  Sent(stream);
  Receive(stream, kFirst, 1);
  End(stream);
  const TokenStreamId next = Opened();
  EXPECT_EQ(Sent(next).attach.size(), 1u);
  Attach(kSecond);  // a new one may wait for longer
  EXPECT_LE(client_.NextDeadline(), now_ + kWaitUs);
  now_ += kWaitUs - 1;
  EXPECT_TRUE(client_.Tick(now_).empty());
  ++now_;
  const auto lost = client_.Tick(now_);
  Check();
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_EQ(lost[0].id, kFirst);
  EXPECT_EQ(lost[0].epoch, kEpoch);
  EXPECT_EQ(client_.attached(), 1u);
  const TokenStreamRequest request = Sent(next);
  ASSERT_EQ(request.detach.size(), 1u) << "the worker may get the attach late";
  EXPECT_EQ(request.detach[0].id, kFirst);
  EXPECT_EQ(request.attach.size(), 1u);
}

TEST_F(ReattachTest, StreamsThatBreakWithoutANewTokenAreTriedAFewTimes) {
  Attach(kFirst);
  TokenStreamId stream = Opened();
  Receive(stream, kFirst, 1);
  for (int i = 0; i < 3 * TokenStreamClient::kBreaksMax; ++i) {
    ASSERT_TRUE(End(stream).empty());
    stream = Opened();
    EXPECT_EQ(Receive(stream, kFirst, 2).repeated, 1);  // a new one each time
  }
  for (int i = 0; i < TokenStreamClient::kBreaksMax; ++i) {
    ASSERT_TRUE(End(stream).empty());
    stream = Opened();
    EXPECT_EQ(Receive(stream, kFirst, 1).repeated, 1);
  }
  EXPECT_EQ(End(stream).size(), 1u);
}

TEST_F(ReattachTest, APausedRequestIsAttachedAgainWithoutCredit) {
  Attach(kFirst);
  TokenStreamId stream = Opened();
  Sent(stream);
  client_.SetPaused(kFirst, true);
  Receive(stream, kFirst, 8);
  End(stream);
  stream = Opened();
  EXPECT_EQ(Sent(stream).attach.at(0).credit, 0);
  client_.SetPaused(kFirst, false);
  EXPECT_EQ(Sent(stream).credit.at(0).more, 8);
  EXPECT_EQ(Receive(stream, kFirst, 1).repeated, 1);
}

TEST_F(ReattachTest, EndsAreAcknowledgedWithTheNextMessageOrWhenNothingElseIsAttached) {
  Attach(kFirst);
  Attach(kSecond);
  const TokenStreamId stream = Opened();
  Sent(stream);
  client_.TakeReady();
  Receive(stream, kFirst, 1, /*finished=*/true);
  EXPECT_TRUE(client_.TakeReady().empty());
  Receive(stream, kSecond, 1, /*finished=*/true);
  EXPECT_EQ(client_.TakeReady(), (std::vector<TokenStreamId>{stream}));
  EXPECT_EQ(Sent(stream).detach.size(), 2u);
}

TEST_F(ReattachTest, WhatIsAttachedAnewAfterItsEndIsNotDetached) {
  Attach(kFirst);
  Attach(kSecond);
  const TokenStreamId stream = Opened();
  Sent(stream);
  Receive(stream, kFirst, 0, /*finished=*/true);  // it was refused
  Attach(kFirst);
  const TokenStreamRequest request = Sent(stream);
  EXPECT_EQ(request.attach.size(), 1u);
  EXPECT_TRUE(request.detach.empty());
}

TEST_F(ReattachTest, DetachesThatWereNotSentGoOutOnTheNextStream) {
  Attach(kFirst);
  Attach(kSecond);
  const TokenStreamId stream = Opened();
  Sent(stream);
  Receive(stream, kSecond, 1);
  client_.Detach(kFirst, kEpoch);
  EXPECT_TRUE(End(stream).empty());
  const TokenStreamRequest request = Sent(Opened());
  EXPECT_EQ(request.attach.size(), 1u);
  ASSERT_EQ(request.detach.size(), 1u);
  EXPECT_EQ(request.detach[0].id, kFirst);
}

TEST_F(ReattachTest, ARouterThatEndsDetachesFromAll) {
  Attach(kFirst);
  Attach(kSecond);
  const TokenStreamId stream = Opened();
  Sent(stream);
  client_.DetachAll();
  Check();
  EXPECT_EQ(client_.attached(), 0u);
  EXPECT_EQ(Sent(stream).detach.size(), 2u);
}

// ---- the breaker of a decode-worker ----

class BreakerTest : public ReattachTest {
 protected:
  static constexpr int kFailures = TokenStreamClient::kFailuresMax;

  // Streams on which nothing comes, until the breaker is open.
  void OpenBreaker() {
    for (int i = 0; i < kFailures; ++i) {
      Attach(kFirst);
      now_ += client_.NextDeadline() == kNever ? 0 : client_.NextDeadline() - now_;
      client_.Tick(now_);
      const auto opened = client_.TakeOpens();
      ASSERT_EQ(opened.size(), 1u) << "after " << i << " failures";
      EXPECT_EQ(End(opened[0].stream).size(), 1u);
    }
  }
  // The requests that are not asked for.
  std::vector<RequestId> Unreached() {
    std::vector<RequestId> ids;
    for (const TokenStreamClient::Lost& lost : client_.Tick(now_)) {
      EXPECT_TRUE(lost.unreached);
      ids.push_back(lost.id);
    }
    Check();
    return ids;
  }
};

TEST_F(BreakerTest, AWorkerThatIsNotReachedIsNotWaitedFor) {
  OpenBreaker();
  Attach(kFirst);
  EXPECT_EQ(client_.attached(), 0u);
  EXPECT_EQ(client_.NextDeadline(), now_);
  EXPECT_EQ(Unreached(), std::vector<RequestId>{kFirst});
  EXPECT_EQ(client_.NextDeadline(), kNever);
  EXPECT_TRUE(client_.TakeOpens().empty());
  client_.Attach(kSecond, kEpoch, {"b", {0, {4}}, false}, "", false, now_);
  EXPECT_EQ(client_.TakeOpens().size(), 1u) << "another worker";
}

TEST_F(BreakerTest, OneRequestTriesItAfterThePauseAndItsAnswerLetsAllThrough) {
  OpenBreaker();
  now_ += TokenStreamClient::kBackoffMaxUs;
  Attach(kFirst);
  const TokenStreamId stream = Opened();
  Attach(kSecond);
  EXPECT_EQ(Unreached(), std::vector<RequestId>{kSecond}) << "the try is under way";
  Receive(stream, kFirst, 1);
  Attach(kSecond);
  EXPECT_TRUE(Unreached().empty());
  EXPECT_EQ(client_.attached(), 2u);
}

TEST_F(BreakerTest, ATryThatFailsOpensItAgain) {
  OpenBreaker();
  now_ += TokenStreamClient::kBackoffMaxUs;
  Attach(kFirst);
  EXPECT_EQ(End(Opened()).size(), 1u);
  Attach(kSecond);
  EXPECT_EQ(Unreached(), std::vector<RequestId>{kSecond});
}

TEST_F(BreakerTest, ARequestThatLeavesDuringItsTryIsFollowedByAnother) {
  OpenBreaker();
  now_ += TokenStreamClient::kBackoffMaxUs;
  Attach(kFirst);
  Opened();
  client_.Detach(kFirst, kEpoch);
  Attach(kSecond);
  EXPECT_TRUE(Unreached().empty());
  EXPECT_EQ(client_.attached(), 1u);
}

TEST_F(BreakerTest, AnotherProcessAtTheEndpointBeginsAnew) {
  OpenBreaker();
  client_.Attach(kFirst, kEpoch, {"a", {0, {99}}, false}, "", false, now_);
  Check();
  EXPECT_EQ(client_.TakeOpens().size(), 1u);
  EXPECT_TRUE(Unreached().empty());
}

TEST_F(BreakerTest, NothingIsToldOfARequestThatIsDetached) {
  OpenBreaker();
  Attach(kFirst);
  client_.Detach(kFirst, kEpoch);
  EXPECT_TRUE(Unreached().empty());
}

TEST_F(BreakerTest, ARequestThatIsAttachedAnewIsNotLostForItsFormerPlace) {
  OpenBreaker();
  Attach(kFirst);
  client_.Attach(kFirst, kEpoch, {"b", {0, {4}}, false}, "", false, now_);
  EXPECT_TRUE(Unreached().empty());
  EXPECT_EQ(client_.attached(), 1u);
}

}  // namespace
}  // namespace skein::scheduler
