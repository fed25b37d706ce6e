// Copies between pools that are larger than any cache. Internal to this folder.
//
// An ordinary store first reads the line it writes to; a streaming (non-temporal) store does not,
// and evicts nobody else's data. For blocks of 4 KiB to 1 MiB in pools of 64 MiB that is half as
// fast again (bench/transport/README.md). Without SSE2 it is memcpy.
#pragma once

#include <cstddef>

namespace skein::engine {

// The ranges do not overlap. Other threads and processes may be told of the bytes after StreamFence
// only.
void StreamCopy(std::byte* to, const std::byte* from, size_t bytes);
void StreamFence();

// Starts to load what the next StreamCopy will read: the processor foresees a page, not the jump to
// the next block.
void StreamAhead(const std::byte* from);

}  // namespace skein::engine
