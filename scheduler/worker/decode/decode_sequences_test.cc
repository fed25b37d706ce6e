#include "scheduler/worker/decode/decode_sequences.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

using Phase = DecodeSequence::Phase;
using testing::Of;

constexpr Epoch kEpoch{5};
constexpr TimeUs kAttachUntilUs = 1000;

class DecodeSequencesTest : public ::testing::Test {
 protected:
  DecodeSequence& Add(uint64_t serial, int64_t max_tokens = 3) {
    DecodeSequence& sequence = sequences_.Add(testing::Spec(serial, 6, max_tokens), kEpoch,
                                              /*now=*/static_cast<TimeUs>(serial), kAttachUntilUs);
    Check();
    return sequence;
  }
  DecodeSequence& AddRunning(uint64_t serial) {
    DecodeSequence& sequence = Add(serial);
    sequences_.Run(sequence, "logprobs", PrefillTimes{1, 2, 3});
    return sequence;
  }
  void End(DecodeSequence& sequence) {
    sequences_.End(sequence, FinishReason::kStop, absl::OkStatus());
    Check();
  }
  void Check() { EXPECT_TRUE(sequences_.CheckInvariants().ok()) << sequences_.CheckInvariants(); }
  std::vector<EmitToken> Tokens() { return Of<EmitToken>(effects_); }
  std::vector<EndStream> Ends() { return Of<EndStream>(effects_); }

  std::vector<TokenEffect> effects_;
  DecodeSequences sequences_{[this](TokenEffect effect) { effects_.push_back(std::move(effect)); }};
};

TEST_F(DecodeSequencesTest, Invariant4TokensWaitForTheRouterAndComeWithoutAGap) {
  DecodeSequence& sequence = AddRunning(1);
  EXPECT_EQ(sequences_.AddToken(sequence, 40, "a"), std::nullopt);
  EXPECT_TRUE(effects_.empty());
  sequences_.Attach(sequence, {9});
  EXPECT_EQ(sequences_.AddToken(sequence, 41, "b"), std::nullopt);
  EXPECT_EQ(sequences_.AddToken(sequence, 42, "c"), FinishReason::kLength);
  End(sequence);
  ASSERT_EQ(Tokens().size(), 3u);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(Tokens()[i].index, i);
  EXPECT_EQ(Tokens()[0].prompt_logprobs, "logprobs");
  EXPECT_EQ(Tokens()[0].times, (PrefillTimes{1, 2, 3}));
  EXPECT_EQ(Tokens()[1].prompt_logprobs, "");
  ASSERT_EQ(Ends().size(), 1u);
  EXPECT_EQ(Ends()[0].call, CallId{9});
  EXPECT_EQ(Ends()[0].output_tokens, 3);
}

TEST_F(DecodeSequencesTest, AStopTokenIsCountedAndNotEmitted) {
  auto spec = testing::Spec(1);
  spec->stop_token_ids = {7};
  spec->min_tokens = 1;
  DecodeSequence& sequence = sequences_.Add(spec, kEpoch, 0, kAttachUntilUs);
  sequences_.Attach(sequence, {9});
  sequences_.Run(sequence, "", std::nullopt);
  EXPECT_EQ(sequences_.AddToken(sequence, 7, ""), std::nullopt) << "too early";
  EXPECT_EQ(sequences_.AddToken(sequence, 7, ""), FinishReason::kStop);
  End(sequence);
  EXPECT_EQ(Tokens().size(), 1u);
  EXPECT_EQ(Ends().at(0).stop_token, 7);
  EXPECT_EQ(Ends().at(0).output_tokens, 2);
}

TEST_F(DecodeSequencesTest, OnlyTracedOnesAreNoted) {
  auto spec = testing::Spec(1);
  spec->traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  DecodeSequence& traced = sequences_.Add(spec, kEpoch, 0, kAttachUntilUs);
  sequences_.Run(traced, "", std::nullopt);
  sequences_.AddToken(traced, 40, "");
  DecodeSequence& other = AddRunning(2);
  for (DecodeSequence* sequence : {&traced, &other}) {
    sequences_.Preempt(*sequence);
    sequences_.Resume(*sequence);
    sequences_.Preempt(*sequence);
    sequences_.Bind(*sequence);
    sequences_.Unbind(*sequence);
  }
  using What = SequenceNote::What;
  const std::vector<What> expected = {What::kReady,     What::kPreempted,    What::kResumed,
                                      What::kPreempted, What::kEnteredGroup, What::kLeftGroup};
  std::vector<What> noted;
  for (const SequenceNote& note : Of<SequenceNote>(effects_)) {
    EXPECT_EQ(note.id, traced.id());
    EXPECT_EQ(note.epoch, kEpoch);
    EXPECT_EQ(note.tokens, note.what == What::kReady ? 6 : 7);
    noted.push_back(note.what);
  }
  EXPECT_EQ(noted, expected);
}

TEST_F(DecodeSequencesTest, ARouterThatComesLateGetsTheEndToo) {
  DecodeSequence& sequence = AddRunning(1);
  sequences_.AddToken(sequence, 40, "a");
  End(sequence);
  EXPECT_EQ(sequences_.CountUnclaimed(), 1);
  sequences_.Attach(sequence, {9});
  Check();
  EXPECT_EQ(Tokens().size(), 1u);
  EXPECT_EQ(Ends().size(), 1u);
  EXPECT_EQ(sequences_.CountUnclaimed(), 0);
  EXPECT_EQ(sequences_.Detach({9}), nullptr) << "the stream has ended";
}

TEST_F(DecodeSequencesTest, ARouterThatGoesGetsNothingMore) {
  DecodeSequence& sequence = AddRunning(1);
  sequences_.Attach(sequence, {9});
  EXPECT_EQ(sequences_.Detach({8}), nullptr);
  EXPECT_EQ(sequences_.Detach({9}), &sequence);
  Check();
  sequences_.AddToken(sequence, 40, "a");
  End(sequence);
  EXPECT_TRUE(effects_.empty());
}

TEST_F(DecodeSequencesTest, ARouterThatDoesNotComeInTimeComesNoMore) {
  DecodeSequence& sequence = Add(1);
  sequences_.Attach(Add(2), {9});
  EXPECT_EQ(sequences_.NextAttachEnd(), kAttachUntilUs);
  EXPECT_EQ(sequences_.TakeUnclaimed(kAttachUntilUs - 1), nullptr);
  EXPECT_EQ(sequences_.TakeUnclaimed(kAttachUntilUs), &sequence);
  Check();
  EXPECT_EQ(sequence.stream, DecodeSequence::Stream::kClosed);
  EXPECT_EQ(sequences_.TakeUnclaimed(kAttachUntilUs), nullptr);
  EXPECT_EQ(sequences_.NextAttachEnd(), kNever);
}

TEST_F(DecodeSequencesTest, Invariant5CountsByPhase) {
  Add(1);
  DecodeSequence& running = AddRunning(2);
  Add(3);
  EXPECT_EQ(sequences_.Count(Phase::kReceiving), 2);
  End(running);
  End(sequences_.at({7, 1}));
  EXPECT_EQ(sequences_.CountLive(), 1);
  sequences_.Erase({7, 2});
  Check();
  EXPECT_EQ(sequences_.Find({7, 2}), nullptr);
  EXPECT_EQ(sequences_.Find({7, 1}, {6}), nullptr) << "another epoch";
  EXPECT_NE(sequences_.Find({7, 1}, kEpoch), nullptr);
}

}  // namespace
}  // namespace skein::scheduler
