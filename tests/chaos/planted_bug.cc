// Linked into a service: the bug (scheduler/base/plant.h) that SKEIN_PLANTED_BUG names is planted
// before its main function runs.
#include <cstdio>
#include <cstdlib>

#include "scheduler/base/plant.h"

namespace skein {
namespace {

bool Plant() {
  const char* name = std::getenv("SKEIN_PLANTED_BUG");
  if (name == nullptr) return false;
#ifdef NDEBUG
  std::fputs("SKEIN_PLANTED_BUG: no bug can be planted into an optimised build\n", stderr);
  std::_Exit(2);
#else
  planted_bug = name;
  return true;
#endif
}

[[maybe_unused]] const bool kPlanted = Plant();

}  // namespace
}  // namespace skein
