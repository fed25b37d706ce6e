// Worlds of eight decode workers that bind and release by orders while handoffs are on their way,
// and in which one of them dies or is stopped at a named point, once. Nothing else breaks.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tests/sim/scenario.h"

namespace skein::sim {

struct PointedCase {
  services::testing::FaultPoint point = services::testing::FaultPoint::kNone;
  bool kills = true;
  bool lead = false;
};

// Each point, of a lead and, where there is one, of another rank, killed and stopped.
std::span<const PointedCase> PointedCases();
std::string NameOf(const PointedCase& one);  // such as "a_lead_killed_at_in_step"

// Of the case seed % PointedCases().size().
Scenario MakePointedScenario(uint64_t seed);

}  // namespace skein::sim
