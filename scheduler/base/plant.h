// SKEIN_PLANT(name): a bug planted by tests/sim/plants_test, to prove that the simulator finds such
// bugs. True only in a process that set skein::planted_bug to the name at its start. In optimised
// builds, which are the ones deployed, it is the constant false.
#pragma once

#include <string_view>

#ifdef NDEBUG
#define SKEIN_PLANT(name) false
#else
namespace skein {
inline std::string_view planted_bug;
}  // namespace skein
#define SKEIN_PLANT(name) (::skein::planted_bug == #name)
#endif
