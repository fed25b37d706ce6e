#include "engine/model/ring/ring_layout.h"

#include <algorithm>

#include "scheduler/vocabulary/check.h"

namespace skein::engine {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

RingLayout::RingLayout(const std::vector<RankShare>& shares, int block_tokens,
                       int64_t segment_blocks, int64_t window_blocks)
    : block_tokens_(block_tokens), segment_blocks_(segment_blocks), window_blocks_(window_blocks) {
  int64_t blocks_max = 0, last_block = -1;
  for (const RankShare& share : shares) {
    List list;
    int64_t tokens = share.history_tokens;
    list.seen_after.push_back(tokens);
    for (const TokenSpan& span : share.spans) {
      list.positions.push_back(span.position);
      list.seen_after.push_back(tokens += span.count);
    }
    list.blocks = CeilDivide(tokens, block_tokens);
    if (window_blocks > 0) {
      list.ids = share.history;
      for (const TokenSpan& span : share.spans) {
        const int64_t end = CeilDivide(span.position + span.count, block_tokens);
        for (int64_t id = span.position / block_tokens; id < end; ++id) {
          list.ids.push_back(static_cast<int32_t>(id));
        }
      }
      SKEIN_CHECK(static_cast<int64_t>(list.ids.size()) == list.blocks);
      if (!list.ids.empty()) last_block = std::max<int64_t>(last_block, list.ids.back());
    }
    blocks_max = std::max(blocks_max, list.blocks);
    lists_.push_back(std::move(list));
  }
  segments_ =
      window_blocks > 0 ? last_block / window_blocks + 1 : CeilDivide(blocks_max, segment_blocks);
  for (List& list : lists_) {
    for (int64_t s = 0; s <= segments_; ++s) {
      const auto first = std::lower_bound(list.ids.begin(), list.ids.end(), s * window_blocks);
      list.begins.push_back(window_blocks > 0 ? first - list.ids.begin()
                                              : std::min(s * segment_blocks, list.blocks));
    }
  }
}

int64_t RingLayout::SegmentBegin(int rank, int64_t segment) const {
  return lists_[static_cast<size_t>(rank)].begins[static_cast<size_t>(segment)];
}

int64_t RingLayout::SegmentBlocksOf(int rank, int64_t segment) const {
  return SegmentBegin(rank, segment + 1) - SegmentBegin(rank, segment);
}

std::vector<int32_t> RingLayout::WindowTable(int rank, int64_t segment) const {
  std::vector<int32_t> table(static_cast<size_t>(window_blocks_), -1);
  int32_t place = 0;
  int64_t blocks = 0;
  for (int hop = 0; hop < ranks(); ++hop) {
    const int from = (rank - hop + ranks()) % ranks();
    const std::vector<int32_t>& ids = lists_[static_cast<size_t>(from)].ids;
    for (int64_t i = SegmentBegin(from, segment); i < SegmentBegin(from, segment + 1); ++i) {
      table[static_cast<size_t>(ids[static_cast<size_t>(i)] - segment * window_blocks_)] = place++;
      ++blocks;
    }
  }
  table.resize(static_cast<size_t>(blocks));
  return table;
}

std::vector<VisibleRows> RingLayout::RowsThatSee(int rank, int64_t segment,
                                                 std::span<const int32_t> positions) const {
  const List& list = lists_[static_cast<size_t>(rank)];
  const int64_t segment_tokens = segment_blocks_ * block_tokens_;
  std::vector<VisibleRows> visible;
  auto begin = positions.begin();
  for (size_t s = 0; s < list.seen_after.size() && begin != positions.end(); ++s) {
    const auto end = s < list.positions.size()
                         ? std::lower_bound(begin, positions.end(), list.positions[s])
                         : positions.end();
    const int64_t keys =
        std::clamp<int64_t>(list.seen_after[s] - segment * segment_tokens, 0, segment_tokens);
    const bool same = !visible.empty() && visible.back().keys == keys;
    if (same) {
      visible.back().count += end - begin;
    } else if (keys > 0 && end != begin) {
      visible.push_back({begin - positions.begin(), end - begin, keys});
    }
    begin = end;
  }
  return visible;
}

}  // namespace skein::engine
