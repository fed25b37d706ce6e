// From the orchestrator's flags to what its core plans with.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "scheduler/orchestrator/pool_planner.h"
#include "services/orchestrator/options.h"

namespace skein::services {

// Null without --profile. INVALID_ARGUMENT or NOT_FOUND names the flag and the value.
absl::StatusOr<std::shared_ptr<const scheduler::PlanningConfig>> LoadPlanning(
    const OrchestratorOptions& options);

}  // namespace skein::services
