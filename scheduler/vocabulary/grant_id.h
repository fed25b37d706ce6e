// GrantId: a permission to write blocks, or a staging buffer, of a decode-worker (grants:
// engine/transport/transport.h).
#pragma once

#include <compare>
#include <cstdint>

namespace skein {

// Numbered by the process that gives it, from 1; never used again within its life. 0: no grant.
struct GrantId {
  uint64_t value = 0;
  auto operator<=>(const GrantId&) const = default;
};

}  // namespace skein
