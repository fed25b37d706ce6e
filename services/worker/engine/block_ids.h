// The scheduler's block ids in the engine's words.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/base/ids.h"

namespace skein::services {

inline std::vector<int32_t> PlainIds(std::span<const scheduler::BlockId> blocks) {
  std::vector<int32_t> ids;
  ids.reserve(blocks.size());
  for (const scheduler::BlockId block : blocks) ids.push_back(block.value);
  return ids;
}

}  // namespace skein::services
