// What a collective's call moves at one rank: the bytes that it sends to others or receives from
// them, whichever is more; a reduction, what a ring would send.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace skein::engine {

// `bytes`: of the values that are summed.
inline uint64_t AllReduceBytes(int ranks, uint64_t bytes) {
  return 2 * static_cast<uint64_t>(ranks - 1) * bytes / static_cast<uint64_t>(ranks);
}

// `bytes`: of each rank's part.
inline uint64_t AllGatherBytes(int ranks, uint64_t bytes) {
  return static_cast<uint64_t>(ranks - 1) * bytes;
}

inline uint64_t AllToAllBytes(int rank, std::span<const std::span<const std::byte>> send,
                              std::span<const std::span<std::byte>> receive) {
  uint64_t out = 0, in = 0;
  for (size_t r = 0; r < send.size() && r < receive.size(); ++r) {
    if (r == static_cast<size_t>(rank)) continue;
    out += send[r].size();
    in += receive[r].size();
  }
  return std::max(out, in);
}

}  // namespace skein::engine
