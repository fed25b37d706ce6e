// What the key of a region of device memory carries for processes of its node: behind the key of
// the wire that any process can use. Internal to this folder.
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

// Cuts it off again; nullopt: there is none.
std::optional<RegionExport> TakeExport(std::string* key);

// Whether the whole region lies in the allocation, and is the one described. A description that
// promises more than there is must not let copies leave the allocation.
bool IsSound(const RegionExport& region, uint64_t address, uint64_t bytes);

}  // namespace skein::engine
