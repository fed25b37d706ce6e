#include "engine/handoff/layout_map.h"

#include <numeric>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr KvSpec kSpec = {
    {.num_layers = 1, .kv_heads = 4, .head_dim = 2, .block_tokens = 2, .dtype = DType::kBF16}, 8};

TEST(LayoutMap, OneRankTakesTheBlockAsItIs) {
  EXPECT_EQ(MapBlock(kSpec, {1}, 0, 5), (std::vector<LayoutPiece>{{0, 0, kSpec.BlockBytes()}}));
  EXPECT_EQ(TargetBlock(kSpec, {1}, 5), 5);
}

TEST(LayoutMap, TwoRanksTakeTwoHeadsOfTwiceTheTokens) {
  // A head's tokens: 2 * 2 * 2 bytes at the source, twice that at the target.
  EXPECT_EQ(MapBlock(kSpec, {2}, 0, 4),
            (std::vector<LayoutPiece>{{0, 0, 8}, {8, 16, 8}, {32, 32, 8}, {40, 48, 8}}));
  EXPECT_EQ(MapBlock(kSpec, {2}, 1, 5),
            (std::vector<LayoutPiece>{{16, 8, 8}, {24, 24, 8}, {48, 40, 8}, {56, 56, 8}}));
  EXPECT_EQ(TargetBlock(kSpec, {2}, 4), 2);
  EXPECT_EQ(TargetBlock(kSpec, {2}, 5), 2);
}

TEST(LayoutMap, BlocksOfALayout) {
  EXPECT_EQ(BlocksOfLayout(kSpec, {1}, 9), 5);
  EXPECT_EQ(BlocksOfLayout(kSpec, {2}, 9), 3);
  EXPECT_EQ(BlocksOfLayout(kSpec, {4}, 9), 2);
  EXPECT_EQ(BlocksOfLayout(kSpec, {4}, 8), 1);
  EXPECT_EQ(BlocksOfLayout(kSpec, {8}, 9), 2);
}

TEST(LayoutMap, RanksThatDoNotDivideTheHeadsAreRefused) {
  EXPECT_TRUE(CheckLayout(kSpec, {4}).ok());
  for (const int tp : {0, 3, 6}) {
    const absl::Status status = CheckLayout(kSpec, {tp});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_NE(std::string(status.message()).find("layout"), std::string::npos);
  }
}

// Every element of every (part, head, token) of a prompt lands at the place where a rank of the
// layout looks for it, and every byte is written exactly once.
TEST(LayoutMap, EveryElementLandsWhereTheLayoutHasIt) {
  for (const int tp : {1, 2, 4, 8}) {
    const KvLayout layout{tp};
    const int heads = KvHeads(layout, kSpec);
    const int64_t source_blocks = 8, token_bytes = 4;
    for (int rank = 0; rank < tp; ++rank) {
      const int first_head = tp == 8 ? rank / 2 : rank * heads;
      const int64_t target_blocks =
          BlocksOfLayout(kSpec, layout, source_blocks * kSpec.block_tokens);
      std::vector<int64_t> target(static_cast<size_t>(target_blocks * kSpec.BlockBytes()), -1);
      for (int64_t g = 0; g < source_blocks; ++g) {
        for (const LayoutPiece& piece : MapBlock(kSpec, layout, rank, g)) {
          for (int64_t i = 0; i < piece.bytes; ++i) {
            int64_t& place = target[static_cast<size_t>(
                TargetBlock(kSpec, layout, g) * kSpec.BlockBytes() + piece.target_offset + i)];
            EXPECT_EQ(place, -1);
            place = g * kSpec.BlockBytes() + piece.source_offset + i;
          }
        }
      }
      for (int part = 0; part < 2; ++part) {
        for (int head = 0; head < heads; ++head) {
          for (int64_t token = 0; token < source_blocks * kSpec.block_tokens; ++token) {
            const int64_t tokens = TokensPerBlock(layout, kSpec);
            const int64_t at = token / tokens * kSpec.BlockBytes() +
                               ((part * heads + head) * tokens + token % tokens) * token_bytes;
            const int64_t from = token / kSpec.block_tokens * kSpec.BlockBytes() +
                                 ((part * kSpec.kv_heads + first_head + head) * kSpec.block_tokens +
                                  token % kSpec.block_tokens) *
                                     token_bytes;
            EXPECT_EQ(target[static_cast<size_t>(at)], from) << tp << rank << part << head << token;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace skein::engine
