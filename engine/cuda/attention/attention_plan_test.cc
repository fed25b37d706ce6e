// Every row of a batch meets every key it may see exactly once, a span is cut as it is alone, and
// the cuts give a device enough blocks of about equal work.
#include "engine/cuda/attention/attention_plan.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace skein::engine {
namespace {

constexpr AttentionKind kKinds[] = {AttentionKind::kDecode, AttentionKind::kNarrow,
                                    AttentionKind::kWide};

DeviceSpan Span(int64_t position, int32_t tokens, int32_t kv_heads, int64_t keys = -1) {
  return {0, position, keys, tokens, 0, 0, 16, kv_heads, 0};
}

AttentionPlan PlanOf(const std::vector<DeviceSpan>& spans, int heads, int head_dim = 128,
                     const AttentionPolicy& policy = {}) {
  AttentionPlan plan(policy);
  plan.Build(spans, heads, head_dim);
  return plan;
}

// Keys of each tile, in order of its parts: [begin, end) and the partial rows.
struct Tile {
  AttentionKind kind;
  std::vector<AttentionItem> parts;
};
std::map<std::pair<int, int>, Tile> TilesOf(const AttentionPlan& plan) {
  std::map<std::pair<int, int>, Tile> tiles;
  for (const AttentionKind kind : kKinds) {
    for (const AttentionItem& item : plan.items(kind)) {
      Tile& tile = tiles[{item.span, item.row_begin}];
      tile.kind = kind;
      tile.parts.push_back(item);
    }
  }
  for (auto& [where, tile] : tiles) {
    std::sort(tile.parts.begin(), tile.parts.end(),
              [](const auto& a, const auto& b) { return a.key_begin < b.key_begin; });
  }
  return tiles;
}

void ExpectCovers(const AttentionPlan& plan, const std::vector<DeviceSpan>& spans, int heads) {
  const auto tiles = TilesOf(plan);
  std::map<std::pair<int, int>, AttentionMerge> merges;
  for (const AttentionMerge& merge : plan.merges()) merges[{merge.span, merge.row_begin}] = merge;
  int64_t partial_rows = 0;
  size_t seen_tiles = 0;
  for (size_t s = 0; s < spans.size(); ++s) {
    const int group = heads / spans[s].kv_heads;
    const int rows = spans[s].token_count * group;
    for (int row = 0; row < rows;) {
      const auto at = tiles.find({static_cast<int>(s), row});
      ASSERT_NE(at, tiles.end()) << "span " << s << " row " << row;
      ++seen_tiles;
      const Tile& tile = at->second;
      const int tile_rows = std::min(rows - row, kAttentionRows[static_cast<int>(tile.kind)]);
      const int64_t keys = spans[s].keys >= 0
                               ? spans[s].keys
                               : spans[s].position + (row + tile_rows - 1) / group + 1;
      int64_t next = 0;
      for (size_t p = 0; p < tile.parts.size(); ++p) {
        const AttentionItem& part = tile.parts[p];
        EXPECT_EQ(part.key_begin, next);
        EXPECT_EQ(part.key_begin % kAttentionTileKeys, 0);
        next = part.key_end;
        const int64_t first = merges[at->first].partial;
        EXPECT_EQ(part.partial, tile.parts.size() == 1 ? -1
                                                       : first + static_cast<int64_t>(p) *
                                                                     tile_rows * spans[s].kv_heads);
      }
      EXPECT_EQ(next, keys);
      if (tile.parts.size() > 1) {
        EXPECT_EQ(merges[at->first].parts, static_cast<int>(tile.parts.size()));
        EXPECT_EQ(merges[at->first].rows, tile_rows);
        partial_rows += static_cast<int64_t>(tile.parts.size()) * tile_rows * spans[s].kv_heads;
      }
      row += tile_rows;
    }
  }
  EXPECT_EQ(seen_tiles, tiles.size());
  EXPECT_EQ(partial_rows, plan.partial_rows());
}

TEST(AttentionPlan, KindsByRows) {
  struct Case {
    int tokens, heads, kv_heads, head_dim;
    AttentionKind kind;
  };
  for (const Case c :
       {Case{1, 32, 8, 128, AttentionKind::kDecode}, Case{4, 32, 8, 128, AttentionKind::kDecode},
        Case{5, 32, 8, 128, AttentionKind::kNarrow}, Case{16, 32, 8, 128, AttentionKind::kNarrow},
        Case{17, 32, 8, 128, AttentionKind::kWide}, Case{17, 32, 8, 256, AttentionKind::kNarrow},
        Case{1, 71, 1, 64, AttentionKind::kWide}, Case{1, 32, 1, 64, AttentionKind::kNarrow}}) {
    const AttentionPlan plan = PlanOf({Span(10, c.tokens, c.kv_heads)}, c.heads, c.head_dim);
    for (const AttentionKind kind : kKinds) {
      EXPECT_EQ(plan.items(kind).empty(), kind != c.kind)
          << c.tokens << " tokens, " << c.heads << "/" << c.kv_heads;
    }
  }
}

TEST(AttentionPlan, RowsMeetTheirKeysOnce) {
  std::mt19937 random(3);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int round = 0; round < 200; ++round) {
    const int kv_heads = 1 << draw(0, 3);
    const int heads = kv_heads * draw(1, 9);
    std::vector<DeviceSpan> spans;
    for (int i = draw(0, 6); i >= 0; --i) {
      const int32_t tokens = draw(0, 3) == 0 ? draw(0, 700) : draw(0, 6);
      const int32_t position = draw(0, 1) == 0 ? draw(0, 30000) : draw(0, 80);
      // Of another layout: half of the heads.
      const int own_heads = kv_heads % 2 == 0 && draw(0, 2) == 0 ? kv_heads / 2 : kv_heads;
      spans.push_back(Span(position, tokens, own_heads, draw(0, 3) == 0 ? draw(0, 9000) : -1));
    }
    const AttentionPolicy policy = {draw(1, 600), 64 * draw(1, 8), 64 * draw(1, 8), draw(1, 128)};
    ExpectCovers(PlanOf(spans, heads, draw(0, 1) == 0 ? 128 : 256, policy), spans, heads);
  }
}

TEST(AttentionPlan, NothingForNoTokens) {
  EXPECT_EQ(PlanOf({}, 8).grid().kv_heads, 0);
  EXPECT_EQ(PlanOf({Span(7, 0, 2)}, 8).grid().kv_heads, 0);
}

// A span's parts, wherever it stands in a batch.
TEST(AttentionPlan, ASpanIsCutAsItIsAlone) {
  const std::vector<DeviceSpan> spans = {Span(4095, 1, 8), Span(0, 700, 8), Span(100000, 1, 8),
                                         Span(9000, 100, 8), Span(80, 3, 8)};
  const auto together = TilesOf(PlanOf(spans, 32));
  for (size_t s = 0; s < spans.size(); ++s) {
    for (const auto& [where, tile] : TilesOf(PlanOf({spans[s]}, 32))) {
      const auto at = together.find({static_cast<int>(s), where.second});
      ASSERT_NE(at, together.end());
      ASSERT_EQ(at->second.parts.size(), tile.parts.size());
      for (size_t p = 0; p < tile.parts.size(); ++p) {
        EXPECT_EQ(at->second.parts[p].key_end, tile.parts[p].key_end);
      }
    }
  }
}

// Parts of decode, by the span's keys: as many as the device has places for, none too short.
TEST(AttentionPlan, DecodeParts) {
  struct Case {
    int keys, kv_heads;
    size_t parts;
  };
  for (const Case c :
       {Case{1, 8, 1}, Case{256, 8, 1}, Case{257, 8, 2}, Case{4096, 8, 16}, Case{8448, 8, 33},
        Case{32768, 8, 32}, Case{131072, 8, 33}, Case{4096, 1, 16}, Case{131072, 1, 128}}) {
    const AttentionPlan plan = PlanOf({Span(c.keys - 1, 1, c.kv_heads)}, c.kv_heads * 4);
    EXPECT_EQ(plan.items(AttentionKind::kDecode).size(), c.parts) << c.keys << " keys";
  }
}

// The work of the busiest of `places` when each takes the next item as it gets free, over the mean.
double Imbalance(const AttentionPlan& plan, AttentionKind kind, int kv_heads, size_t places) {
  std::vector<int64_t> load(places, 0);
  int64_t sum = 0;
  for (int head = 0; head < kv_heads; ++head) {
    for (const AttentionItem& item : plan.items(kind)) {
      auto least = std::min_element(load.begin(), load.end());
      *least += item.key_end - item.key_begin;
      sum += item.key_end - item.key_begin;
    }
  }
  return static_cast<double>(*std::max_element(load.begin(), load.end())) *
         static_cast<double>(places) / static_cast<double>(sum);
}

TEST(AttentionPlan, WorkIsBalanced) {
  std::mt19937 random(9);
  std::vector<DeviceSpan> even, ragged;
  for (int i = 0; i < 64; ++i) {
    even.push_back(Span(4095, 1, 8));
    const double log2_keys = std::uniform_real_distribution<double>(5, 15)(random);
    ragged.push_back(Span(static_cast<int64_t>(std::exp2(log2_keys)), 1, 8));
  }
  constexpr size_t kPlaces = 3 * 132;
  EXPECT_LT(Imbalance(PlanOf(even, 32), AttentionKind::kDecode, 8, kPlaces), 1.05);
  EXPECT_LT(Imbalance(PlanOf(ragged, 32), AttentionKind::kDecode, 8, kPlaces), 1.05);
  EXPECT_LT(Imbalance(PlanOf({Span(8447, 1, 8)}, 32), AttentionKind::kDecode, 8, 264), 1.01);
  // A prompt of 8k, and a short slice behind a long history.
  EXPECT_LT(Imbalance(PlanOf({Span(0, 8192, 8)}, 32), AttentionKind::kWide, 8, 264), 1.05);
  EXPECT_LT(Imbalance(PlanOf({Span(60000, 64, 8)}, 32), AttentionKind::kWide, 8, 264), 1.05);
}

TEST(AttentionPlan, TheLongestComeFirst) {
  const AttentionPlan plan = PlanOf({Span(3, 1, 2), Span(0, 900, 2), Span(200, 1, 2)}, 8);
  for (const AttentionKind kind : kKinds) {
    const auto items = plan.items(kind);
    for (size_t i = 1; i < items.size(); ++i) {
      EXPECT_GE((items[i - 1].key_end - items[i - 1].key_begin + 63) / 64,
                (items[i].key_end - items[i].key_begin + 63) / 64);
    }
  }
}

TEST(AttentionPlan, BytesHoldTheLists) {
  const AttentionPlan plan = PlanOf({Span(3000, 1, 2), Span(0, 90, 2), Span(7, 3, 2)}, 16);
  const std::byte* bytes = plan.bytes().data();
  AttentionHeader header;
  std::memcpy(&header, bytes, sizeof header);
  for (const AttentionKind kind : kKinds) {
    const auto items = plan.items(kind);
    const AttentionList list = header.items[static_cast<int>(kind)];
    ASSERT_EQ(static_cast<size_t>(list.count), items.size());
    EXPECT_EQ(list.begin % 8, 0);
    EXPECT_EQ(plan.grid().items[static_cast<int>(kind)], list.count);
    if (list.count > 0) {
      EXPECT_EQ(std::memcmp(bytes + list.begin, items.data(), items.size_bytes()), 0);
    }
  }
  ASSERT_GT(header.merges.count, 0);
  EXPECT_EQ(
      std::memcmp(bytes + header.merges.begin, plan.merges().data(), plan.merges().size_bytes()),
      0);
}

// Whatever the lengths, a plan of one token a span is within the bounds of its graph.
TEST(AttentionPlan, DecodeStaysWithinItsGraphsBounds) {
  std::mt19937 random(5);
  const AttentionPolicy policy;
  for (const int count : {1, 8, 64}) {
    const DecodeGraphBounds bounds = BoundDecode(count, 32, 8, policy);
    EXPECT_GE(bounds.grid.items[0], 1);
    for (int round = 0; round < 20; ++round) {
      std::vector<DeviceSpan> spans;
      for (int i = 0; i < count; ++i) {
        const double log2_keys = std::uniform_real_distribution<double>(0, 19)(random);
        spans.push_back(Span(static_cast<int64_t>(std::exp2(log2_keys)), 1, 8));
      }
      const AttentionPlan plan = PlanOf(spans, 32, 128, policy);
      EXPECT_LE(plan.partial_rows(), bounds.partial_rows);
      EXPECT_LE(plan.bytes().size(), bounds.plan_bytes);
      EXPECT_LE(plan.grid().merges, bounds.grid.merges);
      EXPECT_EQ(plan.grid().kv_heads, bounds.grid.kv_heads);
      EXPECT_TRUE(plan.items(AttentionKind::kNarrow).empty());
      EXPECT_TRUE(plan.items(AttentionKind::kWide).empty());
    }
  }
}

}  // namespace
}  // namespace skein::engine
