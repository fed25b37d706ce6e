// Whether a cluster is well, from the orchestrator's status.
#pragma once

#include <string>
#include <vector>

#include "proto/orchestrator.pb.h"
#include "services/skeinctl/exit_codes.h"

namespace skein::services {

struct Health {
  enum class Level { kHealthy, kDegraded, kCannotServe };
  Level level = Level::kHealthy;
  std::vector<std::string> reasons;  // the gravest first
};

// Cannot serve: no instance ever registered; a model is without a serving instance of a role; no
// router reports, or all drain. Degraded: an instance or a router was lost and no other of its kind
// has come since (for an hour); an invariant is violated. What an operator drains, or what left by
// itself, is no loss.
Health HealthOf(const v1::StatusResponse& status);

const char* NameOf(Health::Level level);  // "healthy", "degraded", "cannot serve"
int ExitCodeOf(Health::Level level);

}  // namespace skein::services
