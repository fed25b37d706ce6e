// The paged KV cache of an engine: a shape, and how many blocks of it there are. One region per
// layer, each `num_blocks` blocks of `BlockBytes()`.
#pragma once

#include <cstdint>

#include "engine/base/dtype.h"
#include "scheduler/vocabulary/kv_shape.h"

namespace skein::engine {

struct KvSpec : KvShape {
  int64_t num_blocks = 0;

  bool operator==(const KvSpec&) const = default;
};

// Memory of one layer's blocks, owned by the engine for its whole life.
struct KvRegion {
  void* base = nullptr;
  int64_t bytes = 0;  // num_blocks * BlockBytes()
};

}  // namespace skein::engine
