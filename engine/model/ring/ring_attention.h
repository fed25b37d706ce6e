// RingAttention: the attention of one rank of a ring step.
//
// A rank's own history and spans, put end to end, are in the prompt's order, so that attention over
// them is one causal call over one block table. What other ranks hold arrives through KvRing and is
// merged by log-sum-exp in the order (segment, distance in the ring), never in that of arrival:
// results repeat bit by bit. Where Ops is reproducible, every rank instead gathers the prompt's KV
// window by window and attends to it in the prompt's order: the bits of a plain step. A rank
// without rows still serves the ring to its end.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/kv/kv_spec.h"
#include "engine/model/forward/run_state.h"
#include "engine/model/layers/layer_loop.h"
#include "engine/model/ring/kv_ring.h"
#include "engine/model/ring/ring_layout.h"
#include "engine/model/ring/ring_progress.h"
#include "engine/model/ring/tensor_projections.h"

namespace skein::engine {

// What a ring step writes besides RunState. T, Q and heads as there.
struct RingBuffers {
  Matrix merged;               // f32 [T, Q]  empty when the activations are f32: then in place
  Matrix partial;              // f32 [T, Q]
  Matrix merged_lse;           // f32 [T, heads]
  Matrix partial_lse;          // f32 [T, heads]
  KvSpec segment;              // the pool's shape with the blocks of one ring buffer
  KvSpec window;               // the same with those of a window; 0: the ring passes no windows
  std::vector<int32_t> count;  // 0, 1, 2, …, at least T and the blocks of a segment
};

class RingAttention final : public AttentionPhase {
 public:
  // The inputs of a step, all of which outlive it.
  struct Step {
    const Model& model;
    const RingLayout& layout;
    const KvRing* ring;         // null when alone
    TensorProjections* shared;  // null where this rank shares no dense part with others
    RingProgress& progress;
    RunState& state;
    const RingBuffers& buffers;
  };

  RingAttention(const Step& step, const Batch* batch) : step_(step), rows_(batch) {}

  void Begin() override;
  absl::Status WriteKv(const LayerWeights& w, int layer) override;
  bool KeepLogitRows(const LayerWeights& w, int layer) override;
  absl::Status Attend(const LayerWeights& w, int layer) override;
  const Batch& Rows() const override { return *rows_; }
  absl::Status End() override;

 private:
  // WriteKv where the dense part is shared.
  absl::Status WriteShared(const LayerWeights& w, int layer);
  // state.attention = attention of state.query.
  absl::Status AttendAll(int layer);
  absl::Status AttendWindows(int layer);
  void AttendWindow(int64_t window, std::byte* buffer);
  // state.attention = the merged rows.
  void Convert();
  void AttendOwn(int layer);
  void AttendArrived(int rank, int64_t segment, std::byte* buffer);
  // Merges `partial` into the merged rows, from row `first` on.
  void MergePartial(int64_t first);
  Matrix Merged() const;
  // This rank is done with every fill of the ring.
  void ConsumeAll();

  const Step step_;
  const Batch* rows_;
  Batch selected_;  // of the last layer
  bool queries_due_ = false;
};

}  // namespace skein::engine
