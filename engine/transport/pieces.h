// From the pieces of a Post to the segments that go on the wire: bounds, addresses, and the merging
// of neighbours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/transport/transport.h"

namespace skein::engine {

// Where a region lies in its own process.
struct RegionExtent {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

// A run of bytes that touches on both sides. Never empty.
struct Segment {
  RegionId local;
  RegionId remote;
  std::byte* local_address = nullptr;
  uint64_t remote_address = 0;
  uint64_t bytes = 0;
};

// Null for an unknown region.
using FindExtent = std::function<const RegionExtent*(RegionId)>;

// INVALID_ARGUMENT names the first piece that leaves a region, NOT_FOUND the first with an unknown
// one. Pieces of zero bytes are dropped; a piece that continues its predecessor on both sides is
// merged with it.
absl::StatusOr<std::vector<Segment>> ToSegments(std::span<const TransferPiece> pieces,
                                                const FindExtent& local, const FindExtent& remote);

}  // namespace skein::engine
