// The chunk search of Tetris's algorithms 1 and 3 for known groups. Part of CdspPlanner. Uses only
// numbers: a group is represented by the time at which it is ready.
//
// Within one pool, the group of a size follows from the first chunk's size, so all recursive calls
// of algorithm 1 below one first chunk share one row of times. Times stay relative to the moment of
// planning; this covers equation 2, which moves the origin to the end of each chunk.
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

  // Starts a new request with a limit of `max_explored` states.
  void Start(int64_t prompt_tokens, const PlanOptions& options, int max_explored);

  // Explores what algorithm 1 explores if the first chunk has size index `first` and no chunk is
  // larger than `largest`. ready_s[i], first <= i <= largest, is when the group of size index i is
  // free. Replaces *best with any plan with a shorter time to first token.
  void From(int first, int largest, const double* ready_s, ChunkPath* best);

 private:
  struct State {
    double now_s;     // end of the chunks so far
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
  // [i][j]: the minimum over sizes i ... j and their shapes of a, b and min(c / 2, d).
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
