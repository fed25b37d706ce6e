#include "engine/parallel/shard_layout.h"

#include <numeric>
#include <string>
#include <vector>

#include "engine/kv/kv_spec.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace skein::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The head counts of models that exist, and of the paper's figures 6 and 7.
struct Heads {
  int heads, kv_heads;
};
const Heads kHeads[] = {{8, 4},  {8, 8},  {8, 1},  {8, 2},  {6, 6},  {4, 2},
                        {12, 6}, {24, 3}, {32, 8}, {32, 4}, {64, 8}, {40, 40}};
const GroupMode kModes[] = {{1, 1}, {2, 1}, {1, 2}, {3, 1}, {1, 3},  {4, 1}, {1, 4},
                            {2, 2}, {3, 2}, {2, 3}, {6, 1}, {1, 6},  {8, 1}, {1, 8},
                            {2, 4}, {4, 2}, {3, 4}, {4, 3}, {12, 1}, {1, 12}};

ShardShape ShapeOf(Heads heads) { return {heads.heads, heads.kv_heads, 16, 1001, 2048}; }

bool Possible(Heads h, int ranks) {
  return h.heads % ranks == 0 && (h.kv_heads % ranks == 0 || ranks % h.kv_heads == 0);
}

std::vector<ShardLayout> LayoutsOf(Heads heads, GroupMode mode) {
  std::vector<ShardLayout> layouts;
  for (int rank = 0; rank < mode.ranks(); ++rank) {
    absl::StatusOr<ShardLayout> layout = MakeShardLayout(ShapeOf(heads), mode, rank);
    EXPECT_TRUE(layout.ok()) << layout.status();
    layouts.push_back(*layout);
  }
  return layouts;
}

void ExpectCover(std::vector<ShardRange> ranges, int64_t count) {
  int64_t next = 0;
  for (const ShardRange& range : ranges) {
    EXPECT_EQ(range.begin, next);
    EXPECT_GE(range.count, 0);
    next = range.end();
  }
  EXPECT_EQ(next, count);
}

template <typename Body>
void ForAll(const Body& body) {
  int cases = 0;
  for (const Heads h : kHeads) {
    for (const GroupMode mode : kModes) {
      if (!Possible(h, mode.ranks())) continue;
      SCOPED_TRACE(testing::Message() << h.heads << "/" << h.kv_heads << " heads, sp " << mode.sp
                                      << ", tp " << mode.tp);
      body(h, mode);
      ++cases;
    }
  }
  EXPECT_GT(cases, 100);
}

// All modes of as many ranks attend with the same heads at the same ranks, in order: what one mode
// wrote, any other reads.
TEST(ShardLayoutTest, HeadsOfARankDependOnTheNumberOfRanksAlone) {
  ForAll([](Heads h, GroupMode mode) {
    const std::vector<ShardLayout> full_tp = LayoutsOf(h, {1, mode.ranks()});
    for (const ShardLayout& layout : LayoutsOf(h, mode)) {
      const auto rank = static_cast<size_t>(layout.rank);
      EXPECT_EQ(layout.heads, full_tp[rank].heads);
      EXPECT_EQ(layout.kv_heads, full_tp[rank].kv_heads);
      EXPECT_EQ(layout.vocabulary, full_tp[rank].vocabulary);
      EXPECT_EQ(layout.heads.begin, layout.rank * (h.heads / mode.ranks()));
      // Under full TP the rank multiplies by just the weights of its heads.
      EXPECT_EQ(full_tp[rank].weight_heads, full_tp[rank].heads);
      EXPECT_EQ(full_tp[rank].weight_kv_heads, full_tp[rank].kv_heads);
    }
  });
}

// What the all-to-all of an SP group deals out is what its members computed, and their whole.
TEST(ShardLayoutTest, AnSpGroupComputesTheHeadsOfItsMembers) {
  ForAll([](Heads h, GroupMode mode) {
    const std::vector<ShardLayout> layouts = LayoutsOf(h, mode);
    for (const ShardLayout& layout : layouts) {
      int64_t next = layout.weight_heads.begin;
      const std::vector<int> group = SpGroupOf(mode, layout.rank);
      for (const int member : group) {
        const ShardLayout& other = layouts[static_cast<size_t>(member)];
        EXPECT_EQ(other.tp_rank, layout.tp_rank);
        EXPECT_EQ(other.weight_heads, layout.weight_heads);
        EXPECT_EQ(other.heads.begin, next);
        next = other.heads.end();
        EXPECT_GE(other.kv_heads.begin, layout.weight_kv_heads.begin);
        EXPECT_LE(other.kv_heads.end(), layout.weight_kv_heads.end());
      }
      EXPECT_EQ(next, layout.weight_heads.end());
      EXPECT_EQ(layout.kv_heads.count, layouts[0].kv_heads.count);
      EXPECT_EQ(group[static_cast<size_t>(layout.sp_rank)], layout.rank);
      EXPECT_EQ(TpGroupOf(mode, layout.rank)[static_cast<size_t>(layout.tp_rank)], layout.rank);
    }
  });
}

// A rank holds just the KV heads that its query heads use, and a head's holders are neighbours.
TEST(ShardLayoutTest, KvHeadsFollowTheQueryHeads) {
  ForAll([](Heads h, GroupMode mode) {
    const int group = h.heads / h.kv_heads;
    std::vector<std::vector<int>> holders(static_cast<size_t>(h.kv_heads));
    for (const ShardLayout& layout : LayoutsOf(h, mode)) {
      EXPECT_EQ(layout.kv_heads.begin, layout.heads.begin / group);
      EXPECT_EQ(layout.kv_heads.end(), (layout.heads.end() - 1) / group + 1);
      EXPECT_EQ(layout.heads.count % layout.kv_heads.count, 0);
      for (int64_t head = layout.kv_heads.begin; head < layout.kv_heads.end(); ++head) {
        holders[static_cast<size_t>(head)].push_back(layout.rank);
      }
    }
    for (int head = 0; head < h.kv_heads; ++head) {
      const ShardRange range = HoldersOf(ShapeOf(h), mode.ranks(), head);
      std::vector<int> expected(static_cast<size_t>(range.count));
      std::iota(expected.begin(), expected.end(), static_cast<int>(range.begin));
      EXPECT_EQ(holders[static_cast<size_t>(head)], expected) << head;
    }
  });
}

// The layout that travels with a sequence agrees, and a block keeps its bytes.
TEST(ShardLayoutTest, KvLayoutHoldsTheSameHeads) {
  ForAll([](Heads h, GroupMode mode) {
    KvSpec spec;
    spec.kv_heads = h.kv_heads;
    spec.head_dim = 16;
    const KvLayout layout{mode.ranks()};
    EXPECT_TRUE(FitsHeads(layout, spec));
    EXPECT_EQ(KvHeads(layout, spec), KvHeadsOf(ShapeOf(h), mode.ranks(), 0).count);
    EXPECT_EQ(KvHeads(layout, spec) * TokensPerBlock(layout, spec), h.kv_heads * spec.block_tokens);
  });
  EXPECT_FALSE(FitsHeads(KvLayout{3}, {.kv_heads = 4}));
  EXPECT_FALSE(FitsHeads(KvLayout{0}, {.kv_heads = 4}));
}

TEST(ShardLayoutTest, WeightsAreCoveredOnce) {
  ForAll([](Heads h, GroupMode mode) {
    std::vector<ShardRange> heads, inner, vocabulary;
    for (const ShardLayout& layout : LayoutsOf(h, mode)) {
      vocabulary.push_back(layout.vocabulary);
      if (layout.sp_rank != 0) continue;
      heads.push_back(layout.weight_heads);
      inner.push_back(layout.intermediate);
      EXPECT_EQ(layout.adds_output_bias(), layout.tp_rank == 0);
    }
    ExpectCover(heads, h.heads);
    ExpectCover(inner, 1001);
    ExpectCover(vocabulary, 2048);
  });
}

// Figure 6: two KV heads on four ranks. Figure 7's six heads, in order under every mode.
TEST(ShardLayoutTest, TheFiguresOfThePaper) {
  std::vector<int64_t> kv, heads;
  for (const ShardLayout& layout : LayoutsOf({4, 2}, {4, 1})) kv.push_back(layout.kv_heads.begin);
  EXPECT_THAT(kv, ElementsAre(0, 0, 1, 1));
  for (const ShardLayout& layout : LayoutsOf({6, 6}, {3, 2})) heads.push_back(layout.heads.begin);
  EXPECT_THAT(heads, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(SpGroupOf({3, 2}, 4), ElementsAre(3, 4, 5));
  EXPECT_THAT(TpGroupOf({3, 2}, 4), ElementsAre(1, 4));
}

TEST(ShardLayoutTest, ModesOfAGroup) {
  EXPECT_THAT(ModesOf(1), ElementsAre(GroupMode{1, 1}));
  EXPECT_THAT(ModesOf(6),
              ElementsAre(GroupMode{1, 6}, GroupMode{2, 3}, GroupMode{3, 2}, GroupMode{6, 1}));
}

TEST(ShardLayoutTest, TokensFillPlacesFromTheFront) {
  const auto counts = [](int64_t tokens, int sp) {
    std::vector<int64_t> result;
    for (const ShardRange& range : TokensOf(tokens, sp)) result.push_back(range.count);
    return result;
  };
  EXPECT_THAT(counts(8, 4), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(counts(9, 4), ElementsAre(3, 3, 3, 0));
  EXPECT_THAT(counts(7, 4), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(counts(1, 4), ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(counts(0, 2), ElementsAre(0, 0));
  for (int sp = 1; sp <= 9; ++sp) {
    for (int64_t tokens = 0; tokens < 40; ++tokens) ExpectCover(TokensOf(tokens, sp), tokens);
  }
}

// What rank a sends to rank b is what b receives from a, there and back.
TEST(ShardLayoutTest, ExchangesMatch) {
  ForAll([](Heads h, GroupMode mode) {
    const std::vector<ShardLayout> layouts = LayoutsOf(h, mode);
    for (const int64_t tokens : {1, 5, 8, 61}) {
      const std::vector<ShardRange> places = TokensOf(tokens, mode.sp);
      for (const ShardLayout& a : layouts) {
        for (const int member : SpGroupOf(mode, a.rank)) {
          const ShardLayout& b = layouts[static_cast<size_t>(member)];
          const auto to = static_cast<size_t>(b.sp_rank), from = static_cast<size_t>(a.sp_rank);
          const ShardShape shape = ShapeOf(h);
          EXPECT_EQ(ToAttention(shape, a, places).send[to],
                    ToAttention(shape, b, places).receive[from]);
          EXPECT_EQ(FromAttention(shape, a, places).send[to],
                    FromAttention(shape, b, places).receive[from]);
        }
        const std::vector<int64_t> received = ToAttention(ShapeOf(h), a, places).receive;
        EXPECT_EQ(std::accumulate(received.begin(), received.end(), int64_t{0}),
                  tokens * (a.heads.count + 2 * a.kv_heads.count) * 16);
      }
    }
  });
}

TEST(ShardLayoutTest, RefusesByFieldAndValue) {
  const auto message = [](ShardShape shape, GroupMode mode, int rank) {
    const absl::StatusOr<ShardLayout> layout = MakeShardLayout(shape, mode, rank);
    EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(layout.status().message());
  };
  const ShardShape shape = {12, 6, 16, 1001, 2048};
  EXPECT_THAT(message(shape, {0, 2}, 0), HasSubstr("sp = 0"));
  EXPECT_THAT(message(shape, {1, -1}, 0), HasSubstr("tp = -1"));
  EXPECT_THAT(message(shape, {1, 100000}, 0), HasSubstr("tp = 100000"));
  EXPECT_THAT(message(shape, {2, 1}, 2), HasSubstr("rank = 2"));
  EXPECT_THAT(message(shape, {2, 1}, -1), HasSubstr("rank = -1"));
  EXPECT_THAT(message(shape, {4, 2}, 0), HasSubstr("num_heads = 12"));
  EXPECT_THAT(message(shape, {2, 2}, 0), HasSubstr("num_kv_heads = 6"));
  EXPECT_THAT(message({12, 5, 16, 1, 1}, {1, 1}, 0), HasSubstr("num_kv_heads = 5"));
  EXPECT_THAT(message({12, 6, 0, 1, 1}, {1, 1}, 0), HasSubstr("head_dim = 0"));
  EXPECT_THAT(message({12, 6, 16, 1, 1}, {1, 2}, 0), HasSubstr("intermediate_size = 1"));
  EXPECT_THAT(message({12, 6, 16, 1, 0}, {1, 1}, 0), HasSubstr("vocab_size = 0"));
}

}  // namespace
}  // namespace skein::engine
