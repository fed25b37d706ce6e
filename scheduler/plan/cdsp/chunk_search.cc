#include "scheduler/plan/cdsp/chunk_search.h"

#include <algorithm>
#include <limits>

namespace skein::scheduler {

ChunkSearch::ChunkSearch(const LatencyModel& model) : model_(model) {
  const int sizes = static_cast<int>(model.sp_sizes().size());
  for (int i = 0; i < sizes; ++i) {
    SpCoefficients least = model.LeastAt(i);
    for (int j = i; j < sizes; ++j) {
      const SpCoefficients k = model.LeastAt(j);
      least.a_s = std::min(least.a_s, k.a_s);
      least.b_s_per_token = std::min(least.b_s_per_token, k.b_s_per_token);
      least.d_s_per_token2 =
          std::min({least.d_s_per_token2, k.c_s_per_token2 / 2, k.d_s_per_token2});
      least_[static_cast<size_t>(i)][static_cast<size_t>(j)] = least;
    }
  }
}

void ChunkSearch::Start(int64_t prompt_tokens, const PlanOptions& options, int max_explored) {
  prompt_tokens_ = prompt_tokens;
  min_chunk_tokens_ = options.min_chunk_tokens;
  improvement_rate_ = options.improvement_rate;
  explored_left_ = max_explored;
}

void ChunkSearch::From(int first, int largest, const double* ready_s, ChunkPath* best) {
  ready_s_ = ready_s;
  best_ = best;
  const State start{0, 0, prompt_tokens_, 0};
  for (int next = first + 1; next <= largest; ++next) TryPair(start, first, next, largest);
}

// Algorithm 3, the check of its chunk, and the recursion.
void ChunkSearch::TryPair(const State& state, int current, int next, int largest) {
  const double start_s = std::max(state.now_s, ready_s_[current]);
  const double budget_s = ready_s_[next] - start_s;
  if (!(budget_s > 0) || explored_left_ == 0) return;
  const int64_t tokens = model_.SolveChunkTokensAt(current, state.history, budget_s);
  const int64_t rest = state.rest - tokens;
  const auto& sizes = model_.sp_sizes();
  if (tokens < min_chunk_tokens_ || !HoldsEnough(sizes[static_cast<size_t>(current)], tokens) ||
      rest < min_chunk_tokens_ || !HoldsEnough(sizes[static_cast<size_t>(next)], rest)) {
    return;
  }
  const double end_s = start_s + model_.SecondsAt(current, state.history, tokens);
  path_[static_cast<size_t>(state.depth)] = {current, tokens, start_s, end_s};
  const State after{end_s, state.history + tokens, rest, state.depth + 1};
  if (!CannotWin(after, next, largest)) Schedule(after, next, largest);
}

// Algorithm 1 for the remaining tokens.
void ChunkSearch::Schedule(const State& state, int smallest, int largest) {
  --explored_left_;
  const int chosen = SingleChunk(state, smallest, largest);
  for (int current = smallest; current < chosen; ++current) {
    for (int next = current + 1; next <= chosen; ++next) TryPair(state, current, next, chosen);
  }
}

// Algorithm 2 for the remaining tokens; times are relative to the end of the last chunk, as in
// equation 2.
int ChunkSearch::SingleChunk(const State& state, int smallest, int largest) {
  double best_s = std::numeric_limits<double>::infinity();
  PathChunk last;
  for (int index = smallest; index <= largest; ++index) {
    if (index > smallest &&
        !HoldsEnough(model_.sp_sizes()[static_cast<size_t>(index)], state.rest)) {
      break;
    }
    const double start_s = std::max(state.now_s, ready_s_[index]);
    const double end_s = start_s + model_.SecondsAt(index, state.history, state.rest);
    const double ttft_s = end_s - state.now_s;
    if (index > smallest && !(ttft_s < best_s * (1 - improvement_rate_))) continue;
    best_s = ttft_s;
    last = {index, state.rest, start_s, end_s};
  }
  if (last.end_s < best_->ttft_s) Keep(state, last);
  return last.size_index;
}

// A lower bound for the end of the remaining work: every chunk at the best rates of all sizes and
// of all their shapes. It holds because sum(C_i L_i + L_i^2 / 2) over consecutive chunks does not
// depend on the cuts.
bool ChunkSearch::CannotWin(const State& state, int smallest, int largest) const {
  const SpCoefficients& least = least_[static_cast<size_t>(smallest)][static_cast<size_t>(largest)];
  const auto history = static_cast<double>(state.history);
  const auto rest = static_cast<double>(state.rest);
  const double seconds =
      least.a_s + rest * (least.b_s_per_token + least.d_s_per_token2 * (2 * history + rest));
  return state.now_s + seconds >= best_->ttft_s;
}

void ChunkSearch::Keep(const State& state, const PathChunk& last) {
  best_->ttft_s = last.end_s;
  best_->chunks = state.depth + 1;
  std::copy_n(path_.begin(), state.depth, best_->chunk.begin());
  best_->chunk[static_cast<size_t>(state.depth)] = last;
}

}  // namespace skein::scheduler
