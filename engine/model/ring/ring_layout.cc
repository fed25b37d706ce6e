#include "engine/model/ring/ring_layout.h"

#include <algorithm>

namespace skein::engine {
namespace {

int64_t CeilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

RingLayout::RingLayout(const std::vector<RankShare>& shares, int block_tokens,
                       int64_t segment_blocks)
    : block_tokens_(block_tokens), segment_blocks_(segment_blocks) {
  int64_t blocks_max = 0;
  for (const RankShare& share : shares) {
    List list;
    int64_t tokens = share.history_tokens;
    list.seen_after.push_back(tokens);
    for (const TokenSpan& span : share.spans) {
      list.positions.push_back(span.position);
      list.seen_after.push_back(tokens += span.count);
    }
    list.blocks = CeilDivide(tokens, block_tokens);
    blocks_max = std::max(blocks_max, list.blocks);
    lists_.push_back(std::move(list));
  }
  segments_ = CeilDivide(blocks_max, segment_blocks);
}

int64_t RingLayout::SegmentBlocksOf(int rank, int64_t segment) const {
  return std::clamp<int64_t>(BlocksOf(rank) - segment * segment_blocks_, 0, segment_blocks_);
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
