// The second part of the key of a region of device memory: what processes of its node need to open
// it. The first part is the wire's key, which any process can use. Internal to engine/transport.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/device/peer_opener.h"

namespace skein::engine {

struct RegionExport {
  PeerPlace place;
  uint64_t address = 0;  // of the region, in its own process
  uint64_t bytes = 0;
};

void AppendExport(const RegionExport& region, std::string* key);

// Removes the second part from a key and returns it; nullopt if the key has none.
std::optional<RegionExport> TakeExport(std::string* key);

// Whether the region is the one described and lies in the allocation as a whole. A description that
// claims more must not let copies leave the allocation.
bool IsSound(const RegionExport& region, uint64_t address, uint64_t bytes);

}  // namespace skein::engine
