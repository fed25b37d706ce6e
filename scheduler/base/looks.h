// SKEIN_LOOKED(n): an event is about to look at n instances, slots of a pool or requests, one after
// the other. Tests count it (orchestrator_cost_test): no event's work may grow with the instances,
// but for the walk that a plan makes over its pool, nor with requests that it does not change. In
// optimised builds it is nothing.
#pragma once

#include <cstdint>

#ifdef NDEBUG
#define SKEIN_LOOKED(n) static_cast<void>(0)
#else
namespace skein {
inline thread_local int64_t looks = 0;
}  // namespace skein
#define SKEIN_LOOKED(n) (::skein::looks += static_cast<int64_t>(n))
#endif
