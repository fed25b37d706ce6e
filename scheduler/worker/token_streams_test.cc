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
  EXPECT_TRUE(streams_.Close({77}).empty());
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
  const auto events = streams_.Close(kStream);
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
  streams_.SetLease(6 * kBeatUs);
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

}  // namespace
}  // namespace skein::scheduler
