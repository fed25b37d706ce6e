// The best chunks along one row of growing groups, without the bounds of algorithm 1. Part of
// CdspPlanner (PlanScope::kWide).
//
// Every chunk but the last runs until the group of the next one is free, as in algorithm 3. Then
// the chunk of size index j starts at ready_s[j], whatever came before, and more tokens done by
// then are never worse (if c <= 2 d: a longer history costs no more than the same tokens in the
// chunk). So one number a size suffices, and all sequences of sizes are covered in O(sizes^2).
#pragma once

#include <array>
#include <cstdint>

#include "scheduler/plan/cdsp/chunk_path.h"
#include "scheduler/plan/latency/latency_model.h"

namespace skein::scheduler {

class ChunkLadder {
 public:
  explicit ChunkLadder(const LatencyModel& model) : model_(model) {}

  // ready_s[i], 0 <= i < sizes, ascending: when the group of size index i is free.
  void Climb(const double* ready_s, int sizes, int64_t prompt_tokens, int64_t min_chunk_tokens);

  // The shortest time to first token of the plans whose last chunk has this size index; infinity if
  // there is none.
  double TtftAt(int index) const { return steps_[static_cast<size_t>(index)].ttft_s; }
  void WritePath(int index, ChunkPath* path) const;

 private:
  struct Step {
    double start_s = 0;
    int64_t history = 0;  // the most tokens done by start_s
    int before = -1;      // the size index of the chunk before; -1: none
    double ttft_s = 0;
  };

  void StepFrom(int current, int sizes, int64_t min_chunk_tokens);

  const LatencyModel& model_;
  int64_t prompt_tokens_ = 0;
  std::array<Step, kMaxSpSizes> steps_;
};

}  // namespace skein::scheduler
