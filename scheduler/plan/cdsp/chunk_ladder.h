// The best chunks along one sequence of growing groups, without algorithm 1's bounds. Part of
// CdspPlanner (PlanScope::kWide).
//
// Every chunk except the last runs until the next chunk's group is free, as in algorithm 3. So the
// chunk of size index j starts at ready_s[j] regardless of earlier chunks, and more tokens done by
// then are never worse (if c <= 2 d in each shape: a longer history costs no more than the same
// tokens in the chunk, which holds for the fastest shape if it does for each). So one number per
// size suffices, and all sequences of sizes are covered in O(sizes^2).
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

  // The shortest time to first token of plans whose last chunk has this size index; infinity if
  // there are none.
  double TtftAt(int index) const { return steps_[static_cast<size_t>(index)].ttft_s; }
  void WritePath(int index, ChunkPath* path) const;

 private:
  struct Step {
    double start_s = 0;
    int64_t history = 0;  // maximum tokens done by start_s
    int before = -1;      // size index of the previous chunk; -1: none
    double ttft_s = 0;
  };

  void StepFrom(int current, int sizes, int64_t min_chunk_tokens);

  const LatencyModel& model_;
  int64_t prompt_tokens_ = 0;
  std::array<Step, kMaxSpSizes> steps_;
};

}  // namespace skein::scheduler
