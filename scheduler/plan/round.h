// Rounds chunk boundaries to blocks.
#pragma once

#include <cstdint>

#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// Moves the chunks' boundaries to the nearest multiples of block_tokens; an empty chunk is merged
// into the next one. Times are unchanged. REQUIRES a chunk with tokens.
void RoundToBlocks(int64_t block_tokens, PrefillPlan* plan);

}  // namespace skein::scheduler
