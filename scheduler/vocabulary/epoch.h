// Epoch: one assignment of a request.
#pragma once

#include <compare>
#include <cstdint>

namespace skein {

// Grows over all requests of a cluster; an older one is refused with FAILED_PRECONDITION. Numbered
// by the orchestrator (scheduler/base/ids.h).
struct Epoch {
  uint64_t value = 0;
  auto operator<=>(const Epoch&) const = default;
};

}  // namespace skein
