// Copies between memory pools that are larger than any cache. Internal to engine/transport/ucx.
//
// An ordinary store first reads the cache line that it writes to. A streaming (non-temporal) store
// does not, and evicts no other data. For blocks of 4 KiB to 1 MiB in pools of 64 MiB it is 1.5
// times as fast (bench/transport/README.md). Without SSE2 this is memcpy.
#pragma once

#include <cstddef>

namespace skein::engine {

// The ranges do not overlap. Call StreamFence before another thread or process is told of the
// bytes.
void StreamCopy(std::byte* to, const std::byte* from, size_t bytes);
void StreamFence();

// Starts to load what the next StreamCopy will read. The processor's prefetcher follows a page, but
// not a jump to the next block.
void StreamAhead(const std::byte* from);

}  // namespace skein::engine
