// PagedAttention cut into AttentionUnits and shared among threads.
//
// A unit is one KV head of one sequence and a tile of its rows. Where one tile holds all rows of
// the sequence (decode, a short slice) and it has many keys, keys are split as well, so that one
// long sequence keeps all threads busy: each part writes a partial result, and parts are merged by
// their log-sum-exp. How a sequence is cut depends on its own span only, never on the batch or on
// the number of threads, so its result does not either.
//
// With a window, keys are split at its multiples, whatever the rows: every unit is computed window
// by window, by the same kernel, and results are merged in order.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/ops/cpu/kernels/kernels.h"
#include "engine/ops/cpu/scratch.h"
#include "engine/ops/ops.h"

namespace skein::engine {

// Parts of one tile that are to be merged: `parts` partial results one after the other.
struct SplitTile {
  AttentionUnit whole;             // where the merged result goes; its key range covers all parts
  const float* partial = nullptr;  // [parts][tokens * group, head_dim]
  const float* lse = nullptr;      // [parts][tokens * group]
  int parts = 0;
};

class AttentionUnits {
 public:
  // `window`: keys that are attended to at a time and merged in order; 0: as is fastest. Views stay
  // the caller's. The units are valid until the next Build.
  void Build(const ConstMatrix& q, std::span<const SequenceSpan> sequences, const KvLayerView& kv,
             float scale, const Matrix& out, const Matrix& lse, int64_t window, int threads);

  std::span<const AttentionUnit> units() const { return units_; }
  std::span<const SplitTile> split_tiles() const { return split_tiles_; }
  // Units [first, second) are thread `index`'s of `threads`, of about equal cost.
  std::pair<size_t, size_t> UnitsOf(int index) const;
  int64_t window() const { return window_; }
  // The size that the largest unit needs, with room for merging its windows.
  size_t ScratchBytes() const { return scratch_bytes_; }

 private:
  void AddTiles(const ConstMatrix& q, const SequenceSpan& sequence, const KvLayerView& kv,
                float scale, const Matrix& out, const Matrix& lse);
  void SplitLongTiles();
  void ShareUnits(int threads);

  int64_t window_ = 0;
  std::vector<AttentionUnit> units_;
  std::vector<int> parts_;  // of each unit, before the split
  std::vector<SplitTile> split_tiles_;
  std::vector<size_t> share_ends_;  // [threads]
  Scratch partials_;
  size_t scratch_bytes_ = 0;
};

}  // namespace skein::engine
