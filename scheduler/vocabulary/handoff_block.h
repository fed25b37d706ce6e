// HandoffBlock: a block of a prompt, and where the instance that hands it over keeps it.
#pragma once

#include <cstdint>

#include "scheduler/vocabulary/block_id.h"

namespace skein {

struct HandoffBlock {
  int64_t global = 0;  // the block's index in the prompt: position / block_tokens
  BlockId local;
  bool operator==(const HandoffBlock&) const = default;
};

}  // namespace skein
