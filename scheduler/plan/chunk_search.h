// The search for chunks of Tetris's algorithms 1 and 3, once the groups are known. Part of
// CdspPlanner. Numbers only: groups appear as the time at which they are ready.
//
// Within one pool the group of a size follows from the first chunk's size, so all recursive calls
// of algorithm 1 below one first chunk share one row of times. Times stay relative to the moment
// of planning; that subsumes equation 2, which shifts the origin to the end of each chunk.
#pragma once

#include <array>
#include <cstdint>

#include "scheduler/plan/cdsp_planner.h"
#include "scheduler/plan/latency_model.h"

namespace skein::scheduler {

// Ring attention deals a chunk in two shards an instance; each shard gets a token.
inline bool HoldsEnough(int sp, int64_t tokens) { return tokens >= 2 * int64_t{sp}; }

struct PathChunk {
  int size_index = 0;  // into the model's SP sizes
  int64_t tokens = 0;
  double start_s = 0;
  double end_s = 0;
};

struct ChunkPath {
  static constexpr int kMaxChunks = 17;  // as many as there are SP sizes

  double ttft_s = 0;
  int chunks = 0;
  std::array<PathChunk, kMaxChunks> chunk;
};

class ChunkSearch {
 public:
  static constexpr int kMaxSizes = ChunkPath::kMaxChunks;

  explicit ChunkSearch(const LatencyModel& model);

  // A new request. *best holds the single-chunk plan and is replaced by every shorter one that From
  // finds, until `max_explored` states have been looked at.
  void Start(int64_t prompt_tokens, const PlanOptions& options, int max_explored, ChunkPath* best);

  // All plans whose first chunk has size index `first` and whose last one has at most `largest`;
  // ready_s[i], first <= i <= largest, is when the group of size index i is free.
  void From(int first, int largest, const double* ready_s);

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
  std::array<std::array<SpCoefficients, kMaxSizes>, kMaxSizes> least_;
  PlanOptions options_;
  int64_t prompt_tokens_ = 0;
  int explored_left_ = 0;
  ChunkPath* best_ = nullptr;
  const double* ready_s_ = nullptr;
  std::array<PathChunk, kMaxSizes> path_;
};

}  // namespace skein::scheduler
