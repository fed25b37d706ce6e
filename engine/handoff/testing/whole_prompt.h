// For tests: all blocks of a prompt, as HandoffSender is told of them.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/vocabulary/block_id.h"
#include "scheduler/vocabulary/handoff_block.h"

namespace skein::engine {

// `local_blocks`: where this instance has them, in the prompt's order.
inline std::vector<HandoffBlock> WholePrompt(const std::vector<BlockId>& local_blocks) {
  std::vector<HandoffBlock> blocks;
  for (const BlockId local : local_blocks) {
    blocks.push_back({static_cast<int64_t>(blocks.size()), local});
  }
  return blocks;
}

}  // namespace skein::engine
