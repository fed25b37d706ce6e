// Chunk boundaries that blocks can have.
#pragma once

#include <cstdint>

#include "scheduler/plan/plan.h"

namespace skein::scheduler {

// The chunks' boundaries on multiples of block_tokens, the nearest ones; a chunk of which nothing
// is left goes to the one after it. Times stay as they were. REQUIRES a chunk with tokens.
void RoundToBlocks(int64_t block_tokens, PrefillPlan* plan);

}  // namespace skein::scheduler
