// The kinds of worlds, by name: what plants_test and failed_seeds_test run.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "tests/sim/scenario.h"

namespace skein::sim {

struct Kind {
  std::string_view name;
  Scenario (*make)(uint64_t seed);
};
std::span<const Kind> Kinds();

}  // namespace skein::sim
