#include "scheduler/worker/token_streams.h"

#include <gtest/gtest.h>

namespace skein::scheduler {
namespace {

constexpr TokenStreamId kStream{1}, kOther{2};
constexpr RequestId kFirst{1, 1}, kSecond{1, 2};
constexpr Epoch kEpoch{5};

class TokenStreamsTest : public ::testing::Test {
 protected:
  std::vector<DecodeEvent> Take(TokenStreamId stream, const TokenStreamRequest& request) {
    std::vector<DecodeEvent> events;
    const absl::Status status = streams_.Take(stream, request, &events);
    EXPECT_TRUE(status.ok()) << status;
    Check();
    return events;
  }
  CallId Attach(TokenStreamId stream, RequestId id, int64_t credit, Epoch epoch = kEpoch) {
    const auto events = Take(stream, {.attach = {{id, epoch, credit, ""}}});
    EXPECT_EQ(events.size(), 1u);
    const auto& called = std::get<AttachCalled>(events.at(0));
    EXPECT_EQ(called.id, id);
    EXPECT_EQ(called.epoch, epoch);
    return called.call;
  }
  void Emit(CallId call, int64_t index, std::string payload = "") {
    streams_.Emit({.call = call, .index = index, .token = TokenAt(index), .payload = payload});
    Check();
  }
  void End(CallId call) {
    streams_.End({.call = call, .reason = FinishReason::kLength, .output_tokens = 3});
    Check();
  }
  void Check() {
    const absl::Status invariants = streams_.CheckInvariants();
    ASSERT_TRUE(invariants.ok()) << invariants;
  }
  static int32_t TokenAt(int64_t index) { return static_cast<int32_t>(100 + index); }

  TokenStreams streams_;
};

TEST_F(TokenStreamsTest, WhatOneStepGaveToOneRouterIsOneMessage) {
  const CallId first = Attach(kStream, kFirst, 10), second = Attach(kStream, kSecond, 10);
  const CallId other = Attach(kOther, {2, 1}, 10);
  EXPECT_FALSE(streams_.HasNext(kStream));
  Emit(first, 0);
  Emit(second, 0);
  Emit(second, 1);  // the step before was not sent yet
  Emit(other, 0);
  EXPECT_EQ(streams_.TakeReady(), (std::vector<TokenStreamId>{kStream, kOther}));
  const TokenBatch batch = streams_.Next(kStream);
  Check();
  ASSERT_EQ(batch.sequences.size(), 2u);
  EXPECT_EQ(batch.sequences[0].id, kFirst);
  EXPECT_EQ(batch.sequences[0].tokens, (std::vector<int32_t>{100}));
  EXPECT_EQ(batch.sequences[1].id, kSecond);
  EXPECT_EQ(batch.sequences[1].first_index, 0);
  EXPECT_EQ(batch.sequences[1].tokens, (std::vector<int32_t>{100, 101}));
  EXPECT_FALSE(streams_.HasNext(kStream));
  EXPECT_TRUE(streams_.HasNext(kOther));
  EXPECT_TRUE(streams_.TakeReady().empty());
}

TEST_F(TokenStreamsTest, ASequenceWithoutCreditWaitsAndHoldsUpNoOther) {
  const CallId poor = Attach(kStream, kFirst, 2), rich = Attach(kStream, kSecond, 100);
  for (int64_t i = 0; i < 3; ++i) {
    Emit(poor, i);
    Emit(rich, i);
  }
  End(poor);
  TokenBatch batch = streams_.Next(kStream);
  Check();
  ASSERT_EQ(batch.sequences.size(), 2u);
  EXPECT_EQ(batch.sequences[0].tokens.size(), 2u);
  EXPECT_EQ(batch.sequences[1].tokens.size(), 3u);
  EXPECT_FALSE(streams_.HasNext(kStream)) << "the end comes after the tokens";
  Take(kStream, {.credit = {{kFirst, kEpoch, 1}}});
  ASSERT_TRUE(streams_.HasNext(kStream));
  batch = streams_.Next(kStream);
  ASSERT_EQ(batch.sequences.size(), 1u);
  EXPECT_EQ(batch.sequences[0].first_index, 2);
  EXPECT_EQ(batch.sequences[0].tokens, (std::vector<int32_t>{102}));
  ASSERT_TRUE(batch.sequences[0].finished.has_value());
  EXPECT_EQ(batch.sequences[0].finished->output_tokens, 3);
  EXPECT_EQ(streams_.sequences(), 1u);
}

TEST_F(TokenStreamsTest, AnEndNeedsNoCredit) {
  const CallId call = Attach(kStream, kFirst, 0);
  End(call);
  const TokenBatch batch = streams_.Next(kStream);
  Check();
  EXPECT_TRUE(batch.sequences.at(0).tokens.empty());
  EXPECT_TRUE(batch.sequences.at(0).finished.has_value());
  EXPECT_EQ(streams_.sequences(), 0u);
  EXPECT_TRUE(Take(kStream, {.detach = {{kFirst, kEpoch}}}).empty()) << "it has ended";
}

// A client that reads slowly must not hold up the drain.
TEST_F(TokenStreamsTest, ARouterIsAskedToMoveARequestWithoutCreditAndOnceForEachAsk) {
  const CallId call = Attach(kStream, kFirst, 0), other = Attach(kStream, kSecond, 10);
  Emit(call, 0);
  EXPECT_FALSE(streams_.HasNext(kStream));
  streams_.Ask({call});
  Check();
  Emit(other, 0);
  TokenBatch batch = streams_.Next(kStream);
  Check();
  ASSERT_EQ(batch.sequences.size(), 2u);
  EXPECT_TRUE(batch.sequences[0].leaving);
  EXPECT_TRUE(batch.sequences[0].tokens.empty());
  EXPECT_FALSE(batch.sequences[1].leaving);
  EXPECT_FALSE(streams_.HasNext(kStream));
  Take(kStream, {.credit = {{kFirst, kEpoch, 5}}});
  batch = streams_.Next(kStream);
  EXPECT_EQ(batch.sequences.at(0).tokens, (std::vector<int32_t>{100})) << "its stream goes on";
  EXPECT_FALSE(batch.sequences[0].leaving);
  streams_.Ask({call});
  EXPECT_TRUE(streams_.HasNext(kStream)) << "asked again";
}

TEST_F(TokenStreamsTest, NobodyIsAskedToMoveWhatHasEnded) {
  const CallId call = Attach(kStream, kFirst, 10), gone = Attach(kStream, kSecond, 10);
  End(call);
  Take(kStream, {.detach = {{kSecond, kEpoch}}});
  streams_.Ask({call});
  streams_.Ask({gone});
  Check();
  const TokenBatch batch = streams_.Next(kStream);
  ASSERT_EQ(batch.sequences.size(), 1u);
  EXPECT_FALSE(batch.sequences[0].leaving);
  EXPECT_FALSE(streams_.HasNext(kStream));
}

TEST_F(TokenStreamsTest, PromptLogprobsAndTimesComeWithTheFirstTokensOnly) {
  const CallId call = Attach(kStream, kFirst, 10);
  streams_.Emit({.call = call,
                 .index = 0,
                 .token = 1,
                 .payload = "p",
                 .prompt_logprobs = "scores",
                 .times = PrefillTimes{1, 2, 3}});
  Emit(call, 1);
  TokenBatch batch = streams_.Next(kStream);
  EXPECT_EQ(batch.sequences.at(0).prompt_logprobs, "scores");
  EXPECT_EQ(batch.sequences[0].times, (PrefillTimes{1, 2, 3}));
  EXPECT_EQ(batch.sequences[0].payloads, (std::vector<std::string>{"p", ""}));
  Emit(call, 2);
  batch = streams_.Next(kStream);
  EXPECT_TRUE(batch.sequences.at(0).prompt_logprobs.empty());
  EXPECT_FALSE(batch.sequences[0].times.has_value());
  EXPECT_TRUE(batch.sequences[0].payloads.empty()) << "none has any";
}

TEST_F(TokenStreamsTest, ADetachedRequestIsClosedAndSendsNothing) {
  const CallId call = Attach(kStream, kFirst, 10);
  Emit(call, 0);
  const auto events = Take(kStream, {.detach = {{kFirst, kEpoch}}});
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<DetachCalled>(events[0]).call, call);
  EXPECT_FALSE(streams_.HasNext(kStream));
  Emit(call, 1);  // the core had not heard of it
  End(call);
  EXPECT_FALSE(streams_.HasNext(kStream));
}

TEST_F(TokenStreamsTest, UnknownAndOlderOnesAreIgnored) {
  EXPECT_TRUE(
      Take(kStream, {.credit = {{kFirst, kEpoch, 1}}, .detach = {{kFirst, kEpoch}}}).empty())
      << "a detach before the attach";
  const CallId call = Attach(kStream, kFirst, 1);
  EXPECT_TRUE(Take(kStream, {.attach = {{kFirst, kEpoch, 1, ""}}}).empty()) << "a duplicate";
  EXPECT_TRUE(Take(kStream, {.detach = {{kFirst, {4}}}}).empty());
  EXPECT_TRUE(Take(kOther, {.detach = {{kFirst, kEpoch}}}).empty()) << "another router's";
  EXPECT_TRUE(streams_.Close({77}, 0).empty());
  Emit(call, 0);
  EXPECT_TRUE(streams_.HasNext(kStream));
}

TEST_F(TokenStreamsTest, AnAttachAndADetachOfOneMessageEndTheRequest) {
  const auto events =
      Take(kStream, {.attach = {{kFirst, kEpoch, 1, ""}}, .detach = {{kFirst, kEpoch}}});
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(std::get<AttachCalled>(events[0]).call, std::get<DetachCalled>(events[1]).call);
  EXPECT_EQ(streams_.sequences(), 0u);
}

TEST_F(TokenStreamsTest, TheEndOfAStreamEndsItsRequestsAndNoOthers) {
  const CallId first = Attach(kStream, kFirst, 1), second = Attach(kStream, kSecond, 1);
  const CallId other = Attach(kOther, {2, 1}, 1);
  Emit(first, 0);
  const auto events = streams_.Close(kStream, 0);
  Check();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(std::get<DetachCalled>(events[0]).call, first);
  EXPECT_EQ(std::get<DetachCalled>(events[1]).call, second);
  Emit(second, 0);
  EXPECT_FALSE(streams_.HasNext(kStream));
  EXPECT_TRUE(streams_.TakeReady().empty());
  Emit(other, 0);
  EXPECT_EQ(streams_.TakeReady(), (std::vector<TokenStreamId>{kOther}));
}

TEST_F(TokenStreamsTest, ALongQueueIsSentInSeveralMessagesInTurn) {
  const CallId first = Attach(kStream, kFirst, 100), second = Attach(kStream, kSecond, 100);
  const std::string big(TokenStreams::kBatchBytesMax / 2, 'x');
  for (int64_t i = 0; i < 6; ++i) Emit(first, i, big);
  Emit(second, 0);
  size_t tokens = 0, messages = 0, second_in = 0;
  while (streams_.HasNext(kStream)) {
    const TokenBatch batch = streams_.Next(kStream);
    Check();
    ++messages;
    for (const SequenceTokens& sequence : batch.sequences) {
      if (sequence.id == kSecond) second_in = messages;
      tokens += sequence.tokens.size();
    }
  }
  EXPECT_EQ(tokens, 7u);
  EXPECT_EQ(messages, 3u) << "of two big ones each";
  EXPECT_EQ(second_in, 2u) << "it does not wait for all of the other";
}

// A message has a limit, and one that is larger ends the stream with all its requests.
TEST_F(TokenStreamsTest, LargeLogprobsOfAPromptTravelAlone) {
  const CallId first = Attach(kStream, kFirst, 10), second = Attach(kStream, kSecond, 10);
  Emit(first, 0);
  streams_.Emit({.call = second,
                 .index = 0,
                 .token = 7,
                 .prompt_logprobs = std::string(TokenStreams::kBatchBytesMax, 'l')});
  EXPECT_EQ(streams_.Next(kStream).sequences.size(), 1u);
  Emit(first, 1);
  Check();
  ASSERT_TRUE(streams_.HasNext(kStream));
  const TokenBatch large = streams_.Next(kStream);
  ASSERT_EQ(large.sequences.size(), 1u);
  EXPECT_EQ(large.sequences[0].id, kSecond);
  EXPECT_EQ(streams_.Next(kStream).sequences.size(), 1u);
}

TEST_F(TokenStreamsTest, AStreamWithTooManyRequestsIsRefused) {
  TokenStreamRequest request;
  for (uint64_t i = 1; i <= TokenStreams::kSequencesMax; ++i) {
    request.attach.push_back({{1, i}, kEpoch, 1, ""});
  }
  EXPECT_EQ(Take(kStream, request).size(), TokenStreams::kSequencesMax);
  std::vector<DecodeEvent> events;
  const absl::Status status =
      streams_.Take(kStream, {.attach = {{{2, 1}, kEpoch, 1, ""}}}, &events);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(events.empty());
}

TEST_F(TokenStreamsTest, CreditOfAnySizeDoesNotOverflow) {
  const CallId call = Attach(kStream, kFirst, INT64_MAX);
  for (int i = 0; i < 3; ++i) Take(kStream, {.credit = {{kFirst, kEpoch, INT64_MAX}}});
  Emit(call, 0);
  EXPECT_TRUE(streams_.HasNext(kStream));
}

// Its router takes a stream on which nothing comes for a dead instance's.
TEST_F(TokenStreamsTest, AStreamWithRequestsOnWhichNothingIsSentGetsEmptyMessages) {
  TimeUs now = 7 * kSecondUs;
  constexpr TimeUs kBeatUs = 2 * kSecondUs;
  streams_.SetLease(12 * kBeatUs);
  EXPECT_EQ(streams_.NextDeadline(), kNever);
  const CallId call = Attach(kStream, kFirst, 10);
  Attach(kOther, kSecond, 10);
  ASSERT_LE(streams_.NextDeadline(), now);
  for (int beats = 0; beats < 3; ++beats) {
    streams_.Tick(now);
    Check();
    EXPECT_EQ(streams_.TakeReady(), (std::vector<TokenStreamId>{kStream, kOther}));
    for (const TokenStreamId stream : {kStream, kOther}) {
      ASSERT_TRUE(streams_.HasNext(stream));
      EXPECT_TRUE(streams_.Next(stream).sequences.empty());
      EXPECT_FALSE(streams_.HasNext(stream));
    }
    EXPECT_EQ(streams_.NextDeadline(), now + kBeatUs);
    streams_.Tick(now + 1);
    EXPECT_TRUE(streams_.TakeReady().empty()) << "before its time";
    now += kBeatUs;
    streams_.Tick(now);
    EXPECT_TRUE(streams_.TakeReady().empty()) << "the beat was sent since the last tick";
    now += kBeatUs;
  }
  streams_.Tick(now);
  Emit(call, 0);
  EXPECT_EQ(streams_.Next(kStream).sequences.size(), 1u) << "tokens are as good as a beat";
  EXPECT_FALSE(streams_.HasNext(kStream));
  Take(kStream, {.detach = {{kFirst, kEpoch}}});
  Take(kOther, {.detach = {{kSecond, kEpoch}}});
  EXPECT_EQ(streams_.NextDeadline(), kNever);
}

// ---- breaks ----

class TokenStreamsBreakTest : public TokenStreamsTest {
 protected:
  static constexpr Incarnation kSelf{41};
  static constexpr TimeUs kNow = 5 * kSecondUs;

  void SetUp() override { streams_.SetProcess(kSelf); }
  std::vector<DecodeEvent> AttachFrom(TokenStreamId stream, int64_t from_index, int64_t credit = 10,
                                      Incarnation process = kSelf) {
    return Take(stream, {.attach = {{.id = kFirst,
                                     .epoch = kEpoch,
                                     .credit = credit,
                                     .from_index = from_index,
                                     .decode = process}}});
  }
  // A request that its router may ask for again, with so many tokens of it sent.
  CallId Begin(int64_t tokens, int64_t credit = 10) {
    const auto events = AttachFrom(kStream, 0, credit);
    const CallId call = std::get<AttachCalled>(events.at(0)).call;
    EXPECT_TRUE(streams_.Next(kStream).sequences.empty()) << "the first message is answered";
    for (int64_t i = 0; i < tokens; ++i) Emit(call, i);
    if (tokens > 0) {
      EXPECT_EQ(TokensOf(kStream), Tokens(0, tokens));
    }
    return call;
  }
  void Break(TokenStreamId stream) {
    EXPECT_TRUE(streams_.Close(stream, kNow).empty());
    Check();
  }
  // Of the one sequence in the next message.
  SequenceTokens Sent(TokenStreamId stream) {
    const TokenBatch batch = streams_.Next(stream);
    Check();
    EXPECT_EQ(batch.sequences.size(), 1u);
    return batch.sequences.empty() ? SequenceTokens() : batch.sequences[0];
  }
  std::vector<int32_t> TokensOf(TokenStreamId stream) { return Sent(stream).tokens; }
  static std::vector<int32_t> Tokens(int64_t from, int64_t to) {
    std::vector<int32_t> tokens;
    tokens.reserve(static_cast<size_t>(to - from));
    for (int64_t i = from; i < to; ++i) tokens.push_back(TokenAt(i));
    return tokens;
  }
  void ExpectUnknown(TokenStreamId stream) {
    const SequenceTokens refusal = Sent(stream);
    ASSERT_TRUE(refusal.finished.has_value());
    EXPECT_TRUE(absl::IsNotFound(refusal.finished->status)) << refusal.finished->status;
    EXPECT_TRUE(refusal.tokens.empty());
  }
};

TEST_F(TokenStreamsBreakTest, ARequestGoesOnOnTheNextStreamBehindWhatItsRouterHas) {
  const CallId call = Begin(5);
  Break(kStream);
  EXPECT_EQ(streams_.held(), 1u);
  Emit(call, 5);  // the core goes on meanwhile
  EXPECT_TRUE(streams_.TakeReady().empty());
  EXPECT_TRUE(AttachFrom(kOther, 3).empty()) << "the core hears of nothing";
  EXPECT_EQ(streams_.held(), 0u);
  const SequenceTokens sent = Sent(kOther);
  EXPECT_EQ(sent.first_index, 2) << "the last one that the router has, to be compared";
  EXPECT_EQ(sent.tokens, Tokens(2, 6));
  Emit(call, 6);
  End(call);
  const SequenceTokens last = Sent(kOther);
  EXPECT_EQ(last.tokens, Tokens(6, 7));
  EXPECT_TRUE(last.finished.has_value());
  EXPECT_TRUE(streams_.Tick(kNow + TokenStreams::kHoldUs).empty());
}

TEST_F(TokenStreamsBreakTest, LogprobsComeAgainWithTheirTokens) {
  const CallId call = Begin(0);
  streams_.Emit({.call = call,
                 .index = 0,
                 .token = 7,
                 .payload = "p0",
                 .prompt_logprobs = "prompt",
                 .times = PrefillTimes{1, 2, 3}});
  Emit(call, 1, "p1");
  EXPECT_EQ(Sent(kStream).prompt_logprobs, "prompt");
  Break(kStream);
  AttachFrom(kOther, 0);
  SequenceTokens sent = Sent(kOther);
  EXPECT_EQ(sent.prompt_logprobs, "prompt") << "its router has nothing";
  EXPECT_EQ(sent.times, (PrefillTimes{1, 2, 3}));
  EXPECT_EQ(sent.payloads, (std::vector<std::string>{"p0", "p1"}));
  Break(kOther);
  AttachFrom({3}, 2);
  sent = Sent({3});
  EXPECT_EQ(sent.first_index, 1);
  EXPECT_TRUE(sent.prompt_logprobs.empty());
  EXPECT_EQ(sent.payloads, (std::vector<std::string>{"p1"}));
}

TEST_F(TokenStreamsBreakTest, WhatIsNotAskedForAgainEndsWhenItsTimeIsOver) {
  const CallId call = Begin(2);
  const CallId plain = Attach(kStream, kSecond, 1);
  const auto closed = streams_.Close(kStream, kNow);
  ASSERT_EQ(closed.size(), 1u) << "one whose router does not attach again";
  EXPECT_EQ(std::get<DetachCalled>(closed[0]).call, plain);
  EXPECT_TRUE(streams_.Tick(kNow + TokenStreams::kHoldUs - 1).empty());
  EXPECT_LE(streams_.NextDeadline(), kNow + TokenStreams::kHoldUs);
  const auto events = streams_.Tick(kNow + TokenStreams::kHoldUs);
  Check();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<DetachCalled>(events[0]).call, call);
  EXPECT_EQ(streams_.NextDeadline(), kNever);
  EXPECT_TRUE(AttachFrom(kOther, 2).empty());
  ExpectUnknown(kOther);
  EXPECT_EQ(streams_.sequences(), 0u);
  static_assert(TokenStreams::kHoldUs < 2 * kSecondUs, "a dead router's blocks are free in 2 s");
}

TEST_F(TokenStreamsBreakTest, AnotherProcessRefusesAtOnce) {
  EXPECT_TRUE(AttachFrom(kStream, 3, 10, Incarnation{40}).empty());
  ExpectUnknown(kStream);
  EXPECT_TRUE(AttachFrom(kOther, 0, 10, Incarnation{40}).empty());
  ExpectUnknown(kOther);
  EXPECT_EQ(streams_.sequences(), 0u);
}

TEST_F(TokenStreamsBreakTest, TheNewStreamTakesOverFromOneThatIsNotKnownToBeBroken) {
  const CallId call = Begin(3, /*credit=*/3);
  Emit(call, 3);  // without credit
  AttachFrom(kOther, 1, /*credit=*/10);
  EXPECT_FALSE(streams_.HasNext(kStream));
  EXPECT_EQ(TokensOf(kOther), Tokens(0, 4));
  Take(kStream, {.credit = {{kFirst, kEpoch, 5, 3}}, .detach = {{kFirst, kEpoch}}});
  Break(kStream);
  EXPECT_EQ(streams_.held(), 0u) << "what comes late on the old one changes nothing";
  Emit(call, 4);
  EXPECT_EQ(TokensOf(kOther), Tokens(4, 5));
}

TEST_F(TokenStreamsBreakTest, AnAttachOfAnOlderStreamThatComesLateTakesNothingOver) {
  const auto attach = [](uint64_t router_stream) {
    return TokenStreamRequest{.attach = {{.id = kFirst,
                                          .epoch = kEpoch,
                                          .credit = 10,
                                          .from_index = 0,
                                          .stream = {router_stream}}}};
  };
  const auto events = Take(kOther, attach(8));
  const CallId call = std::get<AttachCalled>(events.at(0)).call;
  EXPECT_TRUE(Take(kStream, attach(7)).empty()) << "sent before, and on its way for longer";
  Break(kStream);
  EXPECT_EQ(streams_.held(), 0u);
  Emit(call, 0);
  EXPECT_EQ(TokensOf(kOther), Tokens(0, 1));
  Break(kOther);
  EXPECT_TRUE(Take({3}, attach(9)).empty());
  EXPECT_EQ(TokensOf({3}), Tokens(0, 1));
}

TEST_F(TokenStreamsBreakTest, ADetachEndsAHeldRequestAtOnce) {
  const CallId call = Begin(2);
  Break(kStream);
  const auto events = Take(kOther, {.detach = {{kFirst, kEpoch}}});
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<DetachCalled>(events[0]).call, call);
  EXPECT_EQ(streams_.held(), 0u);
}

TEST_F(TokenStreamsBreakTest, WhatIsAcknowledgedIsForgottenUpToTheLastToken) {
  Begin(6);
  Take(kStream, {.credit = {{kFirst, kEpoch, 4, 4}}});
  Break(kStream);
  const auto events = AttachFrom(kOther, 3);  // it has said that it has 4
  ASSERT_EQ(events.size(), 1u) << "the request is given up";
  EXPECT_TRUE(std::holds_alternative<DetachCalled>(events[0]));
  EXPECT_TRUE(absl::IsInternal(Sent(kOther).finished->status));

  const auto begun = Take(kOther, {.attach = {{.id = kSecond, .epoch = kEpoch, .from_index = 0}}});
  const CallId second = std::get<AttachCalled>(begun.at(0)).call;
  for (int64_t i = 0; i < 6; ++i) Emit(second, i);
  Take(kOther, {.credit = {{kSecond, kEpoch, 6, 0}}});
  EXPECT_EQ(TokensOf(kOther), Tokens(0, 6));
  Take(kOther, {.credit = {{kSecond, kEpoch, 4, 4}}});
  Break(kOther);
  Take({3}, {.attach = {{.id = kSecond, .epoch = kEpoch, .credit = 9, .from_index = 4}}});
  EXPECT_EQ(TokensOf({3}), Tokens(3, 6));
}

TEST_F(TokenStreamsBreakTest, MoreTokensThanThereAreCannotHaveBeenReceived) {
  Begin(2);
  Break(kStream);
  EXPECT_EQ(AttachFrom(kOther, 3).size(), 1u);
  EXPECT_TRUE(absl::IsInternal(Sent(kOther).finished->status));
  EXPECT_EQ(streams_.sequences(), 0u);
}

TEST_F(TokenStreamsBreakTest, AnEndIsKeptUntilItIsAcknowledged) {
  const CallId call = Begin(2);
  End(call);
  EXPECT_TRUE(Sent(kStream).finished.has_value());
  EXPECT_EQ(streams_.sequences(), 0u) << "nothing waits to be sent";
  Break(kStream);
  EXPECT_TRUE(AttachFrom(kOther, 1).empty());
  EXPECT_EQ(streams_.sequences(), 1u);
  const SequenceTokens sent = Sent(kOther);
  EXPECT_EQ(sent.tokens, Tokens(0, 2));
  ASSERT_TRUE(sent.finished.has_value());
  EXPECT_EQ(sent.finished->output_tokens, 3);
  EXPECT_TRUE(Take(kOther, {.detach = {{kFirst, kEpoch}}}).empty()) << "the core ended it";
  Break(kOther);
  EXPECT_EQ(streams_.held(), 0u);
}

// A router attached before the request got blocks, and tries again when it hears of the placement.
TEST_F(TokenStreamsBreakTest, ARefusedRequestIsAskedForAnew) {
  const CallId call = Begin(0);
  streams_.End({.call = call,
                .reason = FinishReason::kError,
                .status = absl::UnavailableError("no blocks")});
  EXPECT_TRUE(Sent(kStream).finished.has_value());
  const auto events = AttachFrom(kStream, 0);  // on the same stream, and not acknowledged
  ASSERT_EQ(events.size(), 1u);
  const CallId next = std::get<AttachCalled>(events[0]).call;
  EXPECT_NE(next, call);
  Emit(next, 0);
  EXPECT_EQ(TokensOf(kStream), Tokens(0, 1));
}

TEST_F(TokenStreamsBreakTest, WithoutATimeNothingIsHeld) {
  TokenStreams streams(0);
  std::vector<DecodeEvent> events;
  ASSERT_TRUE(
      streams.Take(kStream, {.attach = {{.id = kFirst, .epoch = kEpoch, .from_index = 0}}}, &events)
          .ok());
  EXPECT_EQ(streams.Close(kStream, kNow).size(), 1u);
  EXPECT_EQ(streams.held(), 0u);
}

}  // namespace
}  // namespace skein::scheduler
