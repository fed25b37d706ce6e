// StagedBlock: a block of a prompt in one layer, in a slot of a staging buffer.
#pragma once

#include <cstdint>

namespace skein {

struct StagedBlock {
  int32_t slot = 0;  // of the buffer; a slot holds one block of one layer
  int32_t layer = 0;
  int64_t global = 0;  // the block's index in the prompt: position / block_tokens
  bool operator==(const StagedBlock&) const = default;
};

}  // namespace skein
