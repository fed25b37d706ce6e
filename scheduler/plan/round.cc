#include "scheduler/plan/round.h"

#include <algorithm>

namespace skein::scheduler {

void RoundToBlocks(int64_t block_tokens, PrefillPlan* plan) {
  int64_t prompt_tokens = 0;
  for (const ChunkPlan& chunk : plan->chunks) prompt_tokens += chunk.tokens;
  const int64_t last_boundary = (prompt_tokens - 1) / block_tokens * block_tokens;
  int64_t planned = 0;
  int64_t rounded = 0;
  for (ChunkPlan& chunk : plan->chunks) {
    planned += chunk.tokens;
    int64_t boundary = (planned + block_tokens / 2) / block_tokens * block_tokens;
    boundary = planned == prompt_tokens ? prompt_tokens : std::min(boundary, last_boundary);
    chunk.tokens = boundary - rounded;
    rounded = boundary;
  }
  std::erase_if(plan->chunks, [](const ChunkPlan& chunk) { return chunk.tokens == 0; });
}

}  // namespace skein::scheduler
