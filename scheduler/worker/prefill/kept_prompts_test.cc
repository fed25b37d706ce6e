#include "scheduler/worker/prefill/kept_prompts.h"

#include <gtest/gtest.h>

#include <utility>

#include "scheduler/worker/testing/core_testing.h"

namespace skein::scheduler {
namespace {

BlockTable Blocks(int32_t first, int32_t count) {
  std::vector<BlockId> blocks;
  for (int32_t i = 0; i < count; ++i) blocks.push_back({first + i});
  return std::make_shared<const std::vector<BlockId>>(std::move(blocks));
}

// Of attempt `number` at request `serial`: its prompt, and tokens that the client has.
SpecPtr Attempt(uint64_t serial, uint64_t number, std::vector<int32_t> prompt) {
  auto spec = testing::Spec(serial);
  spec->id = spec->id.Attempt(number);
  spec->prompt = std::move(prompt);
  return spec;
}

class KeptPromptsTest : public ::testing::Test {
 protected:
  ~KeptPromptsTest() override { EXPECT_TRUE(kept_.CheckInvariants().ok()); }
  void Keep(uint64_t serial, int32_t first_block, TimeUs until_us = 100) {
    EXPECT_EQ(kept_.Keep(Attempt(serial, 0, {1, 2, 3}), Blocks(first_block, 2), until_us), nullptr);
  }
  KeptPrompts kept_;
};

TEST_F(KeptPromptsTest, TheNextAttemptFindsWhatTheOneBeforeComputed) {
  Keep(1, 4);
  EXPECT_EQ(kept_.blocks(), 2);
  const SpecPtr next = Attempt(1, 1, {1, 2, 3, 40, 41});
  ASSERT_NE(kept_.Find(*next), nullptr);
  EXPECT_EQ(*kept_.Find(*next), *Blocks(4, 2));
  EXPECT_EQ(kept_.TokensFor(*next), 3);
  EXPECT_NE(kept_.Find(*Attempt(1, 1, {1, 2, 3})), nullptr) << "its client has no token yet";
  kept_.Take(*next);
  EXPECT_EQ(kept_.Find(*next), nullptr);
  EXPECT_EQ(kept_.blocks(), 0);
}

TEST_F(KeptPromptsTest, NothingIsFoundForAnotherRequestOrAnotherPrompt) {
  Keep(1, 4);
  EXPECT_EQ(kept_.Find(*Attempt(2, 1, {1, 2, 3})), nullptr);
  EXPECT_EQ(kept_.Find(*Attempt(1, 1, {1, 2, 4})), nullptr);
  EXPECT_EQ(kept_.Find(*Attempt(1, 1, {1, 2})), nullptr) << "what is kept is longer";
}

TEST_F(KeptPromptsTest, AFurtherAttemptReplacesTheOneBefore) {
  Keep(1, 4);
  const SpecPtr next = Attempt(1, 1, {1, 2, 3, 40});
  const BlockTable replaced = kept_.Keep(next, Blocks(8, 3), 100);
  ASSERT_NE(replaced, nullptr);
  EXPECT_EQ(*replaced, *Blocks(4, 2));
  EXPECT_EQ(kept_.blocks(), 3);
  EXPECT_EQ(kept_.TokensFor(*Attempt(1, 2, {1, 2, 3, 40, 41})), 4);
}

TEST_F(KeptPromptsTest, TheOldestGivesWayButNotToItsOwnRequest) {
  Keep(1, 0);
  Keep(2, 2);
  Keep(3, 4);
  EXPECT_EQ(*kept_.GiveUpOldest(Attempt(1, 1, {1})->id), *Blocks(2, 2));
  EXPECT_EQ(*kept_.GiveUpOldest({7, 9}), *Blocks(0, 2));
  EXPECT_EQ(kept_.GiveUpOldest({7, 3}), nullptr);
}

TEST_F(KeptPromptsTest, EachIsKeptUntilItsTime) {
  Keep(1, 0, 100);
  Keep(2, 2, 200);
  EXPECT_EQ(kept_.NextDeadline(), 100);
  EXPECT_EQ(kept_.TakeOverdue(99), nullptr);
  EXPECT_EQ(*kept_.TakeOverdue(100), *Blocks(0, 2));
  EXPECT_EQ(kept_.TakeOverdue(100), nullptr);
  EXPECT_EQ(kept_.NextDeadline(), 200);
}

}  // namespace
}  // namespace skein::scheduler
