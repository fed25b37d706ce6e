#include "scheduler/worker/decode/running_batch.h"

#include <gtest/gtest.h>

#include "scheduler/worker/testing/decode_parts.h"

namespace skein::scheduler {
namespace {

class RunningBatchTest : public testing::DecodePartsTest {
 protected:
  // One step of all that run: each gets a token.
  std::vector<StepSequence> Step() {
    running_.GrowTables();
    const std::vector<StepSequence> step = running_.NextStep();
    Check();
    running_.EndStep();
    for (const StepSequence& one : step) {
      if (!one.sample) continue;
      DecodeSequence& sequence = sequences_.at(one.id);
      sequences_.AddToken(sequence, 41, "");
      running_.NoteToken(sequence);
    }
    Check();
    return step;
  }
};

TEST_F(RunningBatchTest, AStepRunsTheLastTokenOfEachAndSamplesTheNext) {
  Start(1, 6);
  const std::vector<StepSequence> step = Step();
  ASSERT_EQ(step.size(), 1u);
  EXPECT_EQ(step[0].position, 6);
  EXPECT_EQ(step[0].count, 1);
  EXPECT_TRUE(step[0].sample);
  EXPECT_EQ(step[0].token_index, 1);
  EXPECT_EQ(step[0].blocks->size(), 2u);
}

TEST_F(RunningBatchTest, ATableGrowsWhenItIsFull) {
  Start(1, 6);
  Step();
  EXPECT_EQ(kv_in_.TableOf({7, 1})->size(), 2u) << "8 tokens in 2 blocks";
  Step();
  EXPECT_EQ(kv_in_.TableOf({7, 1})->size(), 3u) << "a free block is taken as soon as it is wanted";
  Step();
  EXPECT_EQ(kv_in_.TableOf({7, 1})->size(), 3u);
}

TEST_F(RunningBatchTest, BlocksAreKeptForTheGrowthOfThoseThatRun) {
  EXPECT_EQ(running_.ClaimedBlocks(), 0);
  EXPECT_TRUE(running_.MayEnter(10).ok());
  Start(1, 6);
  EXPECT_EQ(running_.ClaimedBlocks(), 2);
  EXPECT_TRUE(running_.MayEnter(6).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(running_.MayEnter(7))) << "8 are free, 2 are kept";
}

TEST_F(RunningBatchTest, TheYoungestIsPreemptedAndComputesEverythingAnew) {
  Start(1, 14, 26);
  Start(2, 14, 26);
  int steps = 0;
  while (running_.preemptions() == 0 && steps < 20) {
    ++steps;
    Step();
  }
  ASSERT_EQ(running_.preemptions(), 1u);
  const DecodeSequence& young = sequences_.at({7, 2});
  EXPECT_EQ(young.phase, DecodeSequence::Phase::kPreempted);
  EXPECT_FALSE(kv_in_.Has(young.id()));
  EXPECT_TRUE(absl::IsResourceExhausted(running_.MayEnter(1))) << "it comes first";
  EXPECT_EQ(running_.ClaimedBlocks(), kv_in_.blocks().free);

  ends_.End(sequences_.at({7, 1}), FinishReason::kLength, absl::OkStatus());
  const std::vector<StepSequence> step = Step();
  ASSERT_EQ(step.size(), 1u);
  EXPECT_EQ(young.phase, DecodeSequence::Phase::kRunning);
  EXPECT_EQ(step[0].position, 0);
  EXPECT_EQ(step[0].count, young.KnownTokens() - 1) << "without the token that it samples now";
  EXPECT_EQ(running_.recomputed_tokens(), static_cast<uint64_t>(step[0].count - 1));
}

TEST_F(RunningBatchTest, OfSeveralTenantsTheOneThatHoldsMostBlocksIsPreempted) {
  // All three want a block at the same step, and none is free.
  Start(1, 6, 26, "oldest");
  Start(2, 14, 26, "burst");
  Start(3, 2, 26, "youngest");
  for (int steps = 0; running_.preemptions() == 0 && steps < 20; ++steps) Step();
  ASSERT_EQ(running_.preemptions(), 1u);
  EXPECT_EQ(sequences_.at({7, 2}).phase, DecodeSequence::Phase::kPreempted);
  EXPECT_EQ(sequences_.at({7, 3}).phase, DecodeSequence::Phase::kRunning);
}

TEST_F(RunningBatchTest, ASequenceInTheStepInFlightStaysInIt) {
  Start(1, 6);
  running_.GrowTables();
  ASSERT_EQ(running_.NextStep().size(), 1u);
  EXPECT_TRUE(running_.InFlight());
  EXPECT_TRUE(running_.InFlight({7, 1}));
  DecodeSequence& sequence = sequences_.at({7, 1});
  ends_.End(sequence, FinishReason::kCancelled, absl::CancelledError(""));
  EXPECT_TRUE(kv_in_.Has({7, 1})) << "the step reads its blocks";
  Check();
  running_.EndStep();
  ends_.Release(sequence);
  EXPECT_FALSE(kv_in_.Has({7, 1}));
  running_.GrowTables();
  EXPECT_TRUE(running_.NextStep().empty());
}

}  // namespace
}  // namespace skein::scheduler
