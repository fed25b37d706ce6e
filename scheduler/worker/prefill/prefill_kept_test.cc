// Prompts that a prefill-worker keeps for the next attempt at their requests, as its core does it.
// The pool has 10 blocks of 4 tokens, a step 4 tokens.
#include <gtest/gtest.h>

#include <memory>

#include "scheduler/worker/testing/prefill_core_fixture.h"

namespace skein::scheduler {
namespace {

using testing::Of;
using testing::PrefillCoreTest;
using testing::Spec;

class PrefillKeptTest : public PrefillCoreTest {
 protected:
  static SpecPtr NextAttempt(uint64_t serial, int64_t prompt_tokens) {
    auto spec = Spec(serial, prompt_tokens);
    spec->id = spec->id.Attempt(1);
    return spec;
  }
  // A prompt of 6 tokens, from its Assign until the decode side has it.
  void Run(uint64_t serial) {
    Assign(Spec(serial));
    Open(serial);
    Step();
    Step();
    Do(HandoffDone{{7, serial}, {5}, {256, 256}, {}});
    Do(CommitReplied{{7, serial}, {5}, {}});
  }
  BlockCounts Blocks() { return core_.Snapshot(now_).blocks; }
};

TEST_F(PrefillKeptTest, TheNextAttemptComputesOnlyWhatIsNew) {
  Run(1);
  EXPECT_EQ(Blocks().held, 0);
  EXPECT_EQ(Blocks().cached, 2);
  const Effects effects = Assign(NextAttempt(1, 9));
  const std::vector<RunStep> steps = Of<RunStep>(effects);
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].sequences[0].position, 6);
  EXPECT_EQ(steps[0].sequences[0].count, 3);
  EXPECT_TRUE(steps[0].sequences[0].sample);
  EXPECT_EQ(Of<OpenHandoff>(effects)[0].blocks.size(), 3u) << "the whole prompt is handed over";
  EXPECT_EQ(Blocks().held, 3);
  EXPECT_EQ(Blocks().cached, 0);
  EXPECT_EQ(core_.Snapshot(now_).kept_tokens, 6u);
}

TEST_F(PrefillKeptTest, BeforeTheFirstTokenOnlyTheLastOneIsComputedAgain) {
  Run(1);
  const Effects effects = Assign(NextAttempt(1, 6));
  EXPECT_EQ(Of<RunStep>(effects)[0].sequences[0].position, 5);
  EXPECT_EQ(Of<RunStep>(effects)[0].sequences[0].count, 1);
  EXPECT_EQ(core_.Snapshot(now_).kept_tokens, 5u);
}

// Its decode instance was lost while the KV was on its way there.
TEST_F(PrefillKeptTest, APromptIsKeptWhoseHandoffWasCancelled) {
  Assign(Spec(1));
  Open(1);
  Step();
  Step();
  Do(CancelCalled{{{7, 1}, {5}, "the decode instance was lost"}});
  Do(HandoffStopped{{7, 1}, {5}});
  EXPECT_EQ(Blocks().cached, 2);
  EXPECT_EQ(Of<RunStep>(Assign(NextAttempt(1, 6)))[0].sequences[0].position, 5);
}

TEST_F(PrefillKeptTest, AHalfComputedPromptIsNotKept) {
  Assign(Spec(1));
  Open(1);
  Step();
  Do(CancelCalled{{{7, 1}, {5}, "the decode instance was lost"}});
  Step();
  Do(HandoffStopped{{7, 1}, {5}});
  EXPECT_EQ(Blocks().cached, 0);
  EXPECT_EQ(Blocks().held, 0);
}

TEST_F(PrefillKeptTest, KeptBlocksGiveWayToWhoNeedsThem) {
  Run(1);
  Run(2);
  EXPECT_EQ(Blocks().cached, 4);
  Assign(Spec(3, 32));  // 8 blocks: the oldest prompt gives way
  EXPECT_EQ(Blocks().held, 8);
  EXPECT_EQ(Blocks().cached, 2);
  EXPECT_EQ(core_.StateOf({7, 3}), "computing-ahead");
}

TEST_F(PrefillKeptTest, NothingIsGivenUpForWhatWouldNotFitAllTheSame) {
  Assign(Spec(1, 32));
  Open(1, 8);
  Assign(Spec(2));
  Open(2);
  for (int i = 0; i < 10; ++i) Step();
  Do(HandoffDone{{7, 2}, {5}, {256, 256}, {}});
  Do(CommitReplied{{7, 2}, {5}, {}});
  EXPECT_EQ(Blocks().cached, 2);
  Assign(Spec(3, 24));
  EXPECT_EQ(core_.StateOf({7, 3}), "queued");
  EXPECT_EQ(Blocks().cached, 2);
}

// It would wait for them until their time has passed.
TEST_F(PrefillKeptTest, BlocksThatAnAttemptCannotUseGiveWayToItself) {
  Run(1);
  auto spec = Spec(1, 40);
  spec->id = spec->id.Attempt(1);
  spec->prompt[0] = 2;
  Assign(spec);
  EXPECT_EQ(Blocks().held, 10);
}

TEST_F(PrefillKeptTest, LogprobsOfThePromptAreComputedAnew) {
  Run(1);
  auto spec = Spec(1, 9);
  spec->id = spec->id.Attempt(1);
  spec->want_prompt_logprobs = true;
  EXPECT_EQ(Of<RunStep>(Assign(spec))[0].sequences[0].position, 0);
}

TEST_F(PrefillKeptTest, APromptIsKeptForALimitedTime) {
  Run(1);
  now_ += PrefillConfig().keep_us - 1;
  Do(Tick{});
  EXPECT_EQ(Blocks().cached, 2);
  EXPECT_LE(core_.NextDeadline(), now_ + 1);
  now_ += 1;
  Do(Tick{});
  EXPECT_EQ(Blocks().cached, 0);
  EXPECT_EQ(Blocks().free, 10);
}

}  // namespace
}  // namespace skein::scheduler
