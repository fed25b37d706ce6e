#include "scheduler/plan/round.h"

#include <gtest/gtest.h>

#include <vector>

namespace skein::scheduler {
namespace {

std::vector<int64_t> Rounded(int64_t block_tokens, const std::vector<int64_t>& chunks) {
  PrefillPlan plan;
  for (const int64_t tokens : chunks) plan.chunks.push_back({tokens, {0}, 0, 0});
  RoundToBlocks(block_tokens, &plan);
  std::vector<int64_t> rounded;
  for (const ChunkPlan& chunk : plan.chunks) rounded.push_back(chunk.tokens);
  return rounded;
}

using Tokens = std::vector<int64_t>;

TEST(RoundTest, ABoundaryGoesToTheNearestBlock) {
  EXPECT_EQ(Rounded(16, {39, 100}), (Tokens{32, 107}));
  EXPECT_EQ(Rounded(16, {40, 100}), (Tokens{48, 92}));
  EXPECT_EQ(Rounded(16, {40, 40, 20}), (Tokens{48, 32, 20}));
  EXPECT_EQ(Rounded(1, {39, 100}), (Tokens{39, 100}));
}

TEST(RoundTest, TheLastChunkIsTheOneThatMayNotVanish) {
  EXPECT_EQ(Rounded(16, {108, 4}), (Tokens{96, 16}));  // the prompt ends on a block
  EXPECT_EQ(Rounded(16, {108, 5}), (Tokens{112, 1}));
  EXPECT_EQ(Rounded(16, {3, 100}), (Tokens{103}));  // the first is merged into the next
  EXPECT_EQ(Rounded(16, {8, 8}), (Tokens{16}));
  EXPECT_EQ(Rounded(16, {5}), (Tokens{5}));
}

}  // namespace
}  // namespace skein::scheduler
