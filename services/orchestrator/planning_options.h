// From the orchestrator's flags to what its core plans with.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "scheduler/orchestrator/prefill/pool_planner.h"
#include "services/orchestrator/options.h"

namespace skein::services {

// Null without --profile. INVALID_ARGUMENT or NOT_FOUND names the flag and the value.
absl::StatusOr<std::shared_ptr<const scheduler::PlanningConfig>> LoadPlanning(
    const OrchestratorOptions& options);

// The tables of the profile as it is now, for a core that was made with `running`. The errors are
// LoadPlanning's; so is one when a table needs what the profile of `running` had not.
absl::StatusOr<scheduler::PlanningTables> ReloadTables(const OrchestratorOptions& options,
                                                       const scheduler::PlanningConfig& running);

}  // namespace skein::services
