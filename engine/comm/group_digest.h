// The name of a group on the wire, and what MakeGroup refuses. Internal to engine/comm.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "engine/comm/fabric.h"

namespace skein::engine {

// A hash of the id and the members: groups of different members may have the same id.
struct GroupDigest {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const GroupDigest&) const = default;
};

GroupDigest DigestOf(GroupId id, std::span<const std::string> addresses);

// INVALID_ARGUMENT with the rank named: `rank` out of range, addresses[rank] not `own`, an address
// twice, or one that `is_ours` (knows its own kind) rejects.
absl::Status CheckMembers(std::span<const std::string> addresses, int rank, const std::string& own,
                          const std::function<bool(const std::string&)>& is_ours);

}  // namespace skein::engine
