// The health of a cluster, from the orchestrator's status.
#pragma once

#include <string>
#include <vector>

#include "proto/orchestrator.pb.h"
#include "services/skeinctl/exit_codes.h"

namespace skein::services {

struct Health {
  enum class Level { kHealthy, kDegraded, kCannotServe };
  Level level = Level::kHealthy;
  std::vector<std::string> reasons;  // most severe first
};

// Cannot serve: no instance has registered; a model has no serving instance of a role; no router
// reports, or all drain. Degraded: an instance or router was lost within the last hour and not
// replaced; an invariant is violated. Processes that were drained or left are not losses.
// itself, is no loss.
Health HealthOf(const v1::StatusResponse& status);

const char* NameOf(Health::Level level);  // "healthy", "degraded", "cannot serve"
int ExitCodeOf(Health::Level level);

}  // namespace skein::services
