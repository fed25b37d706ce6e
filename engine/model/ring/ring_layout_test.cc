#include "engine/model/ring/ring_layout.h"

#include <vector>

#include "gtest/gtest.h"

namespace skein::engine {

void PrintTo(const VisibleRows& v, std::ostream* out) {
  *out << "{" << v.begin << ", " << v.count << ", " << v.keys << "}";
}

namespace {

// Blocks of 4 tokens. Rank 0: 2 blocks of history, tokens 20-23 and 36-38 (the prompt's last). Rank
// 1: 3 blocks of history, tokens 24-35. Rank 2: nothing.
std::vector<RankShare> Shares() { return {{8, {{20, 4}, {36, 3}}}, {12, {{24, 12}}}, {0, {}}}; }

using Rows = std::vector<VisibleRows>;

TEST(RingLayout, CountsBlocksAndSegments) {
  const RingLayout layout(Shares(), 4, 4);
  EXPECT_EQ(layout.ranks(), 3);
  EXPECT_EQ(layout.BlocksOf(0), 4);
  EXPECT_EQ(layout.BlocksOf(1), 6);
  EXPECT_EQ(layout.BlocksOf(2), 0);
  EXPECT_EQ(layout.segments(), 2);
  EXPECT_EQ(layout.SegmentBlocksOf(0, 0), 4);
  EXPECT_EQ(layout.SegmentBlocksOf(0, 1), 0);
  EXPECT_EQ(layout.SegmentBlocksOf(1, 1), 2);
  EXPECT_EQ(layout.SegmentBlocksOf(2, 0), 0);
}

TEST(RingLayout, EarlierSpansAreSeenWhollyLaterOnesNotAtAll) {
  const RingLayout layout(Shares(), 4, 100);
  const std::vector<int32_t> rank0 = {20, 21, 22, 23, 36, 37, 38};
  EXPECT_EQ(layout.RowsThatSee(1, 0, rank0), (Rows{{0, 4, 12}, {4, 3, 24}}));
  EXPECT_EQ(layout.RowsThatSee(2, 0, rank0), Rows{});
  const std::vector<int32_t> rank1 = {24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35};
  EXPECT_EQ(layout.RowsThatSee(0, 0, rank1), (Rows{{0, 12, 12}}));
  const std::vector<int32_t> some = {21, 38};  // rows that need logits
  EXPECT_EQ(layout.RowsThatSee(1, 0, some), (Rows{{0, 1, 12}, {1, 1, 24}}));
  EXPECT_EQ(layout.RowsThatSee(1, 0, {}), Rows{});
}

TEST(RingLayout, SegmentsCutWhatIsSeen) {
  const RingLayout layout(Shares(), 4, 2);  // of 8 tokens
  const std::vector<int32_t> rank0 = {20, 21, 22, 23, 36, 37, 38};
  EXPECT_EQ(layout.segments(), 3);
  EXPECT_EQ(layout.RowsThatSee(1, 0, rank0), (Rows{{0, 7, 8}}));
  EXPECT_EQ(layout.RowsThatSee(1, 1, rank0), (Rows{{0, 4, 4}, {4, 3, 8}}));
  EXPECT_EQ(layout.RowsThatSee(1, 2, rank0), (Rows{{4, 3, 8}}));
  const std::vector<int32_t> rank1 = {24, 25, 34, 35};
  EXPECT_EQ(layout.RowsThatSee(0, 1, rank1), (Rows{{0, 4, 4}}));
  EXPECT_EQ(layout.RowsThatSee(0, 2, rank1), Rows{});
}

}  // namespace
}  // namespace skein::engine
