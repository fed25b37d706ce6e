#include "scheduler/plan/cdsp/chunk_ladder.h"

#include <algorithm>
#include <limits>

namespace skein::scheduler {

void ChunkLadder::Climb(const double* ready_s, int sizes, int64_t prompt_tokens,
                        int64_t min_chunk_tokens) {
  prompt_tokens_ = prompt_tokens;
  for (int i = 0; i < sizes; ++i) steps_[static_cast<size_t>(i)] = {ready_s[i], 0, -1, 0};
  for (int i = 0; i < sizes; ++i) StepFrom(i, sizes, min_chunk_tokens);
}

void ChunkLadder::StepFrom(int current, int sizes, int64_t min_chunk_tokens) {
  Step& step = steps_[static_cast<size_t>(current)];
  const auto& sp_sizes = model_.sp_sizes();
  const int sp = sp_sizes[static_cast<size_t>(current)];
  const int64_t rest = prompt_tokens_ - step.history;
  if (current > 0 && !HoldsEnough(sp, rest)) {
    step.ttft_s = std::numeric_limits<double>::infinity();
    return;
  }
  step.ttft_s = step.start_s + model_.SecondsAt(current, step.history, rest);
  for (int next = current + 1; next < sizes; ++next) {
    Step& after = steps_[static_cast<size_t>(next)];
    if (after.start_s >= step.ttft_s)
      break;  // finished before this group is free, so before all larger ones too
    const double budget_s = after.start_s - step.start_s;
    if (!(budget_s > 0)) continue;
    const int64_t tokens = model_.SolveChunkTokensAt(current, step.history, budget_s);
    const int64_t left = rest - tokens;
    if (tokens < min_chunk_tokens || !HoldsEnough(sp, tokens) || left < min_chunk_tokens ||
        !HoldsEnough(sp_sizes[static_cast<size_t>(next)], left)) {
      continue;
    }
    if (step.history + tokens <= after.history) continue;
    after.history = step.history + tokens;
    after.before = current;
  }
}

void ChunkLadder::WritePath(int index, ChunkPath* path) const {
  path->ttft_s = TtftAt(index);
  path->chunks = 0;
  for (int i = index; i >= 0; i = steps_[static_cast<size_t>(i)].before) ++path->chunks;
  int64_t end_tokens = prompt_tokens_;
  for (int i = index, place = path->chunks; i >= 0;) {
    const Step& step = steps_[static_cast<size_t>(i)];
    const int64_t tokens = end_tokens - step.history;
    path->chunk[static_cast<size_t>(--place)] = {
        i, tokens, step.start_s, step.start_s + model_.SecondsAt(i, step.history, tokens)};
    end_tokens = step.history;
    i = step.before;
  }
}

}  // namespace skein::scheduler
