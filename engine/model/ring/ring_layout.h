// RingLayout: which blocks pass round the ring of a ring step. It depends on the shares alone, so
// all ranks know the same. Pure.
//
// A rank's list: the blocks of its history, then those of its spans. A query sees a prefix of any
// other rank's list: all of its history, which is before the step, and the spans before its own
// position (spans never overlap, so each is seen wholly or not at all). Lists pass round in
// segments of at most `segment_blocks` blocks, so that buffers stay small.
//
// With windows a segment is a range of the prompt instead: what each rank has of its positions
// [s * window, (s + 1) * window). All its pieces together are that range without gaps.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/engine.h"

namespace skein::engine {

// Neighbouring rows of a batch that see the same keys of one segment: keys 0 … keys - 1 of it.
struct VisibleRows {
  int64_t begin = 0;
  int64_t count = 0;
  int64_t keys = 0;
  bool operator==(const VisibleRows&) const = default;
};

class RingLayout {
 public:
  // `window_blocks` > 0: windows of so many blocks. REQUIRES: shares then name their histories.
  RingLayout(const std::vector<RankShare>& shares, int block_tokens, int64_t segment_blocks,
             int64_t window_blocks = 0);

  int ranks() const { return static_cast<int>(lists_.size()); }
  int64_t segments() const { return segments_; }
  int64_t BlocksOf(int rank) const { return lists_[static_cast<size_t>(rank)].blocks; }
  // The blocks of `rank`'s list in one segment, and where in the list they begin.
  int64_t SegmentBlocksOf(int rank, int64_t segment) const;
  int64_t SegmentBegin(int rank, int64_t segment) const;

  // Windows. Where the pieces of a segment come to lie one behind the other at `rank`: its own,
  // that of the rank before it, and so on: [i] is the place of the segment's i-th block.
  std::vector<int32_t> WindowTable(int rank, int64_t segment) const;

  // Which rows, at the ascending `positions`, see something of `rank`'s list in `segment`. Rows
  // ascend and are neighbours: a suffix of all.
  std::vector<VisibleRows> RowsThatSee(int rank, int64_t segment,
                                       std::span<const int32_t> positions) const;

 private:
  struct List {
    int64_t blocks = 0;
    std::vector<int64_t> begins;     // of the segments, and the end
    std::vector<int32_t> ids;        // with windows: which blocks of the prompt they are
    std::vector<int64_t> positions;  // of the spans
    std::vector<int64_t> seen_after;  // tokens of the list seen by whom: before span 0, before 1, …
  };

  int block_tokens_;
  int64_t segment_blocks_;
  int64_t window_blocks_;
  int64_t segments_ = 0;
  std::vector<List> lists_;
};

}  // namespace skein::engine
