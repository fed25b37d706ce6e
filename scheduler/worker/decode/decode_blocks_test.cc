// How running sequences of a DecodeCore take blocks as their tokens come, and are preempted and
// resumed. The pool has 10 blocks of 4 tokens.
#include <gtest/gtest.h>

#include "scheduler/worker/testing/decode_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::DecodeCoreTest;
using testing::Of;
using testing::Spec;

class DecodeBlocksTest : public DecodeCoreTest {
 protected:
  void Start(uint64_t serial, int64_t prompt_tokens, int64_t max_tokens, int32_t priority = 0) {
    auto spec = Spec(serial, prompt_tokens, max_tokens);
    spec->priority = priority;
    ASSERT_TRUE(Open(spec).ok());
    Attach(serial, 50 + serial);
    const int64_t bytes = (prompt_tokens + 3) / 4 * 128;
    Take(Commit(serial, {bytes, bytes}, Token(serial, 0)));
    ++now_;  // so that the next one is younger
  }
  // A token that depends on the sequence and the index alone, as the engine's does.
  static int32_t Token(uint64_t serial, int64_t index) {
    return static_cast<int32_t>(1000 * static_cast<int64_t>(serial) + index);
  }
  void Take(const Effects& effects) {
    for (const EmitToken& token : Of<EmitToken>(effects)) {
      EXPECT_EQ(token.token, Token(token.id.serial, token.index));
      EXPECT_EQ(token.index, emitted_[token.id.serial]++);
    }
    for (const EndStream& end : Of<EndStream>(effects)) ++ends_[end.reason];
    for (const RunStep& step : Of<RunStep>(effects)) in_flight_ = step;
  }
  // Ends the step in flight as an engine would.
  void RunStepInFlight() {
    const RunStep step = std::exchange(in_flight_, {});
    StepDone done{.step = step.step, .status = {}, .results = {}};
    for (const StepSequence& sequence : step.sequences) {
      EXPECT_GE(static_cast<int64_t>(sequence.blocks->size()) * 4,
                sequence.position + sequence.count);
      done.results.push_back(
          {sequence.sample ? Token(sequence.id.serial, sequence.token_index) : -1, "p", ""});
      if (sequence.count > 1) slices_.push_back(sequence);
    }
    ++now_;
    Take(Do(done));
  }
  void RunToTheEnd() {
    for (int steps = 0; in_flight_.step != 0 && steps < 1000; ++steps) RunStepInFlight();
    EXPECT_EQ(in_flight_.step, 0u) << "the engine still runs";
  }
  DecodeSnapshot Look() { return core_.Snapshot(now_); }
  std::string_view StateOf(uint64_t serial) { return core_.StateOf({7, serial}); }

  RunStep in_flight_;
  std::map<uint64_t, int64_t> emitted_;  // by serial
  std::map<FinishReason, int> ends_;
  std::vector<StepSequence> slices_;  // of more than one token
};

TEST_F(DecodeBlocksTest, ATableGrowsWithItsTokens) {
  Start(1, 6, 30);
  EXPECT_EQ(Held(), 2) << "prompt and the first token";
  RunStepInFlight();
  RunStepInFlight();
  EXPECT_EQ(Held(), 3) << "9 tokens are known";
  RunToTheEnd();
  EXPECT_EQ(emitted_[1], 30);
  EXPECT_EQ(Held(), 0);
  EXPECT_EQ(Look().preemptions, 0u);
}

TEST_F(DecodeBlocksTest, MoreRequestsRunThanTheirLastTokensWouldFit) {
  for (uint64_t serial : {1, 2, 3}) Start(serial, 6, 30);
  EXPECT_EQ(Look().running, 3);
  RunToTheEnd();
  for (uint64_t serial : {1, 2, 3}) EXPECT_EQ(emitted_[serial], 30);
  EXPECT_EQ(ends_[FinishReason::kLength], 3);
  EXPECT_GT(Look().preemptions, 0u);
  EXPECT_EQ(Held(), 0);
}

TEST_F(DecodeBlocksTest, TheYoungestIsPreemptedAndItsTokensAreComputedAnew) {
  Start(1, 14, 20);
  Start(2, 14, 20);
  while (Look().preemptions == 0) RunStepInFlight();
  EXPECT_EQ(StateOf(1), "running");
  EXPECT_EQ(StateOf(2), "preempted");
  EXPECT_EQ(Look().preempted, 1);
  const int64_t known = 14 + emitted_[2];
  RunToTheEnd();
  EXPECT_EQ(emitted_[1], 20);
  EXPECT_EQ(emitted_[2], 20);
  ASSERT_FALSE(slices_.empty());
  const StepSequence& slice = slices_.front();
  EXPECT_EQ(slice.id, (RequestId{7, 2}));
  EXPECT_EQ(slice.position, 0);
  EXPECT_EQ(slice.count, known) << "prompt and output";
  EXPECT_TRUE(slice.sample);
  EXPECT_EQ(slice.token_index, known - 14);
  EXPECT_EQ(Look().recomputed_tokens, static_cast<uint64_t>(known - 1));
}

TEST_F(DecodeBlocksTest, AHigherPriorityIsServedFirst) {
  Start(1, 14, 20);
  Start(2, 14, 20, /*priority=*/1);
  while (Look().preemptions == 0) RunStepInFlight();
  EXPECT_EQ(StateOf(1), "preempted");
  EXPECT_EQ(StateOf(2), "running");
  RunToTheEnd();
  EXPECT_EQ(ends_[FinishReason::kLength], 2);
}

TEST_F(DecodeBlocksTest, NobodyIsAdmittedWhileOneIsPreempted) {
  Start(1, 14, 20);
  Start(2, 14, 20);
  while (Look().preemptions == 0) RunStepInFlight();
  EXPECT_GT(Look().blocks.free, 2);
  EXPECT_EQ(Look().load.claimed_blocks, Look().blocks.free) << "none is for others";
  EXPECT_EQ(Open(Spec(3)),
            absl::ResourceExhaustedError("KV blocks: running sequences wait for blocks"));
  while (Look().preempted > 0) RunStepInFlight();
  EXPECT_TRUE(OpenTransfer(3).status.ok());
}

TEST_F(DecodeBlocksTest, SomeBlocksStayFreeForTheGrowthOfThoseHere) {
  for (uint64_t serial = 1; serial <= 4; ++serial) ASSERT_TRUE(Open(Spec(serial)).ok());
  EXPECT_EQ(Look().blocks.free, 2);
  EXPECT_EQ(Open(Spec(5)),
            absl::ResourceExhaustedError("KV blocks: 2 wanted, 2 free, 2 of them reserved for "
                                         "running sequences"));
  EXPECT_EQ(Look().load.claimed_blocks, 2) << "a quarter of the pool";
  for (uint64_t serial : {1, 2, 3, 4}) {
    Do(CancelCalled{{{7, serial}, {5}, "test"}});
    Abort(serial, absl::CancelledError("stopped"));
  }
  EXPECT_EQ(Look().load.claimed_blocks, 0) << "an empty pool keeps none";
  EXPECT_TRUE(Open(Spec(6, 36, 4)).ok());
}

// The others' KV is still coming, so there is nobody to preempt.
TEST_F(DecodeBlocksTest, OneThatFindsNoVictimWaitsWithItsBlocks) {
  Start(1, 14, 20);
  ASSERT_TRUE(Open(Spec(2, 15, 4)).ok());
  while (in_flight_.step != 0) RunStepInFlight();
  EXPECT_EQ(StateOf(1), "running");
  EXPECT_EQ(Look().blocks.free, 0);
  EXPECT_EQ(emitted_[1], 11) << "its 25th token has no place";
  EXPECT_EQ(Open(Spec(3)).code(), absl::StatusCode::kResourceExhausted);
  Take(Do(AbortCalled{{{7, 2}, {5}, absl::CancelledError("stopped"), {1}, {2}}}));
  RunToTheEnd();
  EXPECT_EQ(emitted_[1], 20);
  EXPECT_EQ(Look().preemptions, 0u);
}

TEST_F(DecodeBlocksTest, ReportsTellHowOftenARequestWasPreempted) {
  Start(1, 14, 20);
  Start(2, 14, 20);
  std::map<uint64_t, uint32_t> told;
  while (in_flight_.step != 0) {
    const RunStep step = std::exchange(in_flight_, {});
    std::vector<StepResult> results;
    for (const StepSequence& sequence : step.sequences) {
      results.push_back({Token(sequence.id.serial, sequence.token_index), "p", ""});
    }
    const Effects effects = Do(StepDone{step.step, {}, results});
    Take(effects);
    for (const CallReport& report : Of<CallReport>(effects)) {
      for (const HeldRequest& held : report.request.held) {
        told[held.id.serial] = held.preemptions;
      }
    }
  }
  EXPECT_EQ(told[2], Look().preemptions);
  EXPECT_GT(told[2], 0u);
  EXPECT_EQ(told[1], 0u);
}

TEST_F(DecodeBlocksTest, APreemptedSequenceIsCancelledLikeAnyOther) {
  Start(1, 14, 20);
  Start(2, 14, 20);
  while (Look().preemptions == 0) RunStepInFlight();
  const int64_t before = Held();
  Do(CancelCalled{{{7, 2}, {5}, "test"}});
  EXPECT_EQ(StateOf(2), "") << "its router was told";
  EXPECT_EQ(ended_.at({7, 2}).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(Held(), before);
  RunToTheEnd();
  EXPECT_EQ(emitted_[1], 20);
}

TEST_F(DecodeBlocksTest, WritersAreAnsweredWhileTheirSequenceIsPreemptedAndAfterwards) {
  Start(1, 14, 20);
  Start(2, 14, 20);
  const auto commit_again = [this] { return StatusOf(Commit(2, {512, 512}, Token(2, 0))); };
  while (Look().preemptions == 0) RunStepInFlight();
  EXPECT_TRUE(commit_again().ok());
  EXPECT_TRUE(Renew(2).ok());
  EXPECT_EQ(OpenTransfer(2).status.code(), absl::StatusCode::kFailedPrecondition);
  while (Look().preempted > 0) RunStepInFlight();
  EXPECT_TRUE(commit_again().ok());
  EXPECT_TRUE(Renew(2).ok());
  RunToTheEnd();
  EXPECT_EQ(emitted_[2], 20);
}

// A writer that brought nothing may still put into the blocks.
TEST_F(DecodeBlocksTest, BlocksOfAPreemptedSequenceWaitForItsWriters) {
  writers_live_ = false;
  Start(1, 14, 20);
  Announce(Spec(2, 14, 20));
  OpenTransfer(2, 5, 1);
  OpenTransfer(2, 5, 2);
  Attach(2, 52);
  Take(Commit(2, {512, 512}, Token(2, 0), 1));
  while (Look().preemptions == 0) RunStepInFlight();
  EXPECT_GT(Look().blocks.quarantined, 0);
  while (in_flight_.step != 0) RunStepInFlight();
  const int64_t quarantined = Look().blocks.quarantined;
  EXPECT_GT(quarantined, 0);
  Take(Do(GrantClosed{{2}}));
  EXPECT_EQ(Look().blocks.quarantined, 0);
  RunToTheEnd();
  EXPECT_EQ(emitted_[1], 20);
  EXPECT_EQ(emitted_[2], 20);
}

TEST_F(DecodeBlocksTest, WhatCanNeverFitIsRefusedWithBothNumbers) {
  EXPECT_EQ(Open(Spec(1, 30, 11)),
            absl::InvalidArgumentError("prompt + max_tokens: 41 tokens exceed the KV cache of this "
                                       "instance, 40 tokens"));
  EXPECT_TRUE(Open(Spec(2, 30, 10)).ok()) << "all tokens together fit";
}

TEST_F(DecodeBlocksTest, OneThatFillsThePoolAloneRunsToItsEnd) {
  Start(1, 6, 34);
  Start(2, 6, 34);
  Start(3, 6, 34);
  RunToTheEnd();
  for (uint64_t serial : {1, 2, 3}) EXPECT_EQ(emitted_[serial], 34);
  EXPECT_EQ(Held(), 0);
}

}  // namespace
}  // namespace skein::scheduler
