// GroupId: tells groups of the same members apart.
#pragma once

#include <compare>
#include <cstdint>

namespace skein {

// The same number at every member, never used twice by the same members.
struct GroupId {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const GroupId&) const = default;
};

}  // namespace skein
