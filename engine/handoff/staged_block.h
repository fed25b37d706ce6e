// A block of a prompt on its way through a staging buffer.
#pragma once

#include <cstdint>

namespace skein::engine {

struct StagedBlock {
  int32_t slot = 0;  // of the buffer; a slot holds one block of one layer
  int32_t layer = 0;
  int64_t global = 0;  // the block's index in the prompt
  bool operator==(const StagedBlock&) const = default;
};

}  // namespace skein::engine
