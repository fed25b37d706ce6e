// The search for chunks of Tetris's algorithms 1 and 3, once the groups are known. Part of
// CdspPlanner. Numbers only: groups appear as the time at which they are ready.
//
// Within one pool the group of a size follows from the first chunk's size, so all recursive calls
// of algorithm 1 below one first chunk share one row of times. Times stay relative to the moment
// of planning; that subsumes equation 2, which shifts the origin to the end of each chunk.
#pragma once

#include <array>
#include <cstdint>

#include "scheduler/plan/cdsp/cdsp_planner.h"
#include "scheduler/plan/cdsp/chunk_path.h"
#include "scheduler/plan/latency/latency_model.h"

namespace skein::scheduler {

class ChunkSearch {
 public:
  explicit ChunkSearch(const LatencyModel& model);

  // A new request, for which at most `max_explored` states will be looked at.
  void Start(int64_t prompt_tokens, const PlanOptions& options, int max_explored);

  // All that algorithm 1 looks at if the first chunk has size index `first` and no chunk is larger
  // than `largest`. ready_s[i], first <= i <= largest, is when the group of size index i is free.
  // *best is replaced by every plan with a shorter time to first token.
  void From(int first, int largest, const double* ready_s, ChunkPath* best);

 private:
  struct State {
    double now_s;     // the chunks so far have ended
    int64_t history;  // their tokens
    int64_t rest;     // tokens left
    int depth;        // chunks so far
  };

  void TryPair(const State& state, int current, int next, int largest);
  void Schedule(const State& state, int smallest, int largest);
  int SingleChunk(const State& state, int smallest, int largest);
  bool CannotWin(const State& state, int smallest, int largest) const;
  void Keep(const State& state, const PathChunk& last);

  const LatencyModel& model_;
  // [i][j]: the least of sizes i ... j, of a, b and min(c / 2, d).
  std::array<std::array<SpCoefficients, kMaxSpSizes>, kMaxSpSizes> least_;
  int64_t min_chunk_tokens_ = 1;
  double improvement_rate_ = 0;
  int64_t prompt_tokens_ = 0;
  int explored_left_ = 0;
  ChunkPath* best_ = nullptr;
  const double* ready_s_ = nullptr;
  std::array<PathChunk, kMaxSpSizes> path_;
};

}  // namespace skein::scheduler
